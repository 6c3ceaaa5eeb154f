"""Whole keyspaces as checkpoints, and back."""
