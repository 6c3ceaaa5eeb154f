"""Keyspaces as applications and clients call them, at each node."""
