"""What is wrong with a cluster, by its cause: judged from what members say, without I/O."""
