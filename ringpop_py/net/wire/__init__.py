"""TChannel v2 without any I/O: frames, calls, checksums, and one end of a connection."""
