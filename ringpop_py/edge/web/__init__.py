"""HTTP at a node: keyspaces, health, metrics, and the console's data."""
