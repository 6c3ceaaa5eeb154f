"""The owner of a key, as a pure function of the members."""
