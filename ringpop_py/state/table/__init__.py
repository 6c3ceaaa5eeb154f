"""What a partition holds: keys with values, and what writes do to them, as pure data."""
