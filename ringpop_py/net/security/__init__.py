"""Who may speak to a node: keys of a cluster, certificates, and what these permit."""
