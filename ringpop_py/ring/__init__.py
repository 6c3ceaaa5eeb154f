"""Which member owns a key, as a pure function of who the members are."""
