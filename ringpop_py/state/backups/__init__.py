"""Checkpoints of whole keyspaces, and restoring from them."""
