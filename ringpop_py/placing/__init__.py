"""Which partition a key is in, and which member should own it (pure)."""
