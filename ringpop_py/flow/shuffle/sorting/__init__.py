"""Rows in the order of their keys: frames, cuts, and files of intervals; no task, no socket."""
