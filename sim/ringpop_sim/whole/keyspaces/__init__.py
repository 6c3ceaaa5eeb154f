"""The keyspace of whole daemons: what each has of it, its clients, and what must hold."""
