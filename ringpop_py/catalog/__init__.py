"""What a store knows of keyspaces besides their logs: definitions, assignments, manifests."""
