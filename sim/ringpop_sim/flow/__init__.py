"""Shuffles, exchanges of dataflows, and streams, simulated."""
