"""HTTP/1.1 to the application beside a node, over connections that are kept."""
