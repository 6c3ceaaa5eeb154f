"""The endpoints of a node besides the protocol: Ringpop's, and our own."""
