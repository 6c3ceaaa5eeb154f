"""The log of one partition, as a pure state machine: which node owns it, and what was written."""
