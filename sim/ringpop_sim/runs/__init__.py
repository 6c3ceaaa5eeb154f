"""Runs of plans, one or thousands, and their results."""
