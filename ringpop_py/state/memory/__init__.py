"""Keyspaces in memory mode: copies at members, which are merged. No store has them."""
