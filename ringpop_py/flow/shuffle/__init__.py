"""Shuffles: rows that many clients put, read in order of their keys, again and again.

From below: `protocol` (pure), `sorting` (frames and files of rows), `client` (no trio, no Spark),
and `server`, the process beside a node that holds the rows.
"""
