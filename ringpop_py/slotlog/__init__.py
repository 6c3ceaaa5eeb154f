"""Who owns a partition, and what its log says, as a pure state machine."""
