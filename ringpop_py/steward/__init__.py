"""What a node should do next about partitions, and where requests for them go."""
