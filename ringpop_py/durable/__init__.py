"""Durable keyspaces at one node: which partitions it owns, how each comes and goes, and tasks."""
