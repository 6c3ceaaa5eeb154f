"""What a node is asked besides the protocol: Ringpop's endpoints and our own."""
