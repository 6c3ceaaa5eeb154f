"""Clients of shuffles: they put rows, and read them back in order. No member, no trio, no Spark."""
