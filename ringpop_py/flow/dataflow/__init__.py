"""Dataflows: sources, an exchange between workers, a keyed stage, and a sink, in epochs."""
