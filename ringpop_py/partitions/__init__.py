"""Fixed partitions with keyed state, as pure state machines: no clock, no store, no network."""
