"""What happened in a run, as a file and as a page."""
