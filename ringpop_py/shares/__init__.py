"""What one node has of one keyspace: its partitions, and the tasks that run them."""
