"""An example application, and a demonstration that runs it on a cluster of real processes."""
