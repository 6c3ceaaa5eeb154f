"""Locks on keys, beside the keys; and the terms of leaders and locks, as partitions know them."""
