"""What a store holds about keyspaces besides their logs: definitions, assignments, manifests."""
