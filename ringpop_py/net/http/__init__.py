"""HTTP/1.1 and websockets of the application beside a node, whole or in pieces."""
