"""Reports of a run: a trace file, an HTML page, and the state of one node."""
