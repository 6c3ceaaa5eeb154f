"""What a node should own of a durable keyspace, and what each partition goes through (pure)."""
