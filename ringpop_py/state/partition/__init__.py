"""What a node does with each partition of a durable keyspace: one record, one machine (pure)."""
