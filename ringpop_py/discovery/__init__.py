"""Sources of the hosts that a node contacts to join: configuration, a hosts file, a StatefulSet."""
