"""Keyspaces and health over HTTP, from any member of the cluster."""
