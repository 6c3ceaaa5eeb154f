"""Checkpoints of whole keyspaces, restoring from them, and whether all in a store can be read."""
