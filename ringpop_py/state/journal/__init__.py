"""One log a node for all its partitions, as pure state machines: what was written, and who owns."""
