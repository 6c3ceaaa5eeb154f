"""Calls between nodes over connections: the trio driver of `ringpop_py.net.wire`."""
