"""Keyspaces at work: stores, partitions that are driven, and what applications call."""
