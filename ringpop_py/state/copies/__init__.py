"""Copies of partitions in memory: who lacks what, and when a write is safe (pure)."""
