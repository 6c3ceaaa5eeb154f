"""The hosts that a node contacts to join: listed, from a file, or of a StatefulSet."""
