"""Many values at once, as columns: packed, unpacked, and as batches of Arrow."""
