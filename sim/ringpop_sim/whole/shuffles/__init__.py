"""Shuffles at whole daemons: the process beside each, its disk, its clients, and oracles."""
