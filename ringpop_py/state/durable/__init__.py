"""Durable keyspaces at one node, on trio: what carries out what `partition` decides."""
