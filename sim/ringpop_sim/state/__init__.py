"""Journals and keyspaces, simulated."""
