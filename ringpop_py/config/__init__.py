"""What an operator sets: a node's configuration, and how a TOML file of it is read."""
