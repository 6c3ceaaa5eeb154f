"""Many values in one call, as columns: packed, unpacked, and as batches of Arrow."""
