"""Durable keyspaces at one node: which partitions it owns, and how each comes and goes."""
