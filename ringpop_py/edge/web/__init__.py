"""HTTP at a node: keyspaces, health, metrics, the console's data, and what comes to `--http-in`."""
