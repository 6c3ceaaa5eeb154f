"""Which partition a key is in, which member should own it, and how all members know (pure)."""
