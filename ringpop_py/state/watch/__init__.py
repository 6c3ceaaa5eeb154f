"""Watching a keyspace: each committed change, in order for each key, from any member."""
