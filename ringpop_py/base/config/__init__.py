"""The configuration of a node, and TOML files."""
