"""What one node has of one keyspace, in either mode: who is asked, and what serves here."""
