"""Connections to daemons, of programs that are no members of the cluster."""
