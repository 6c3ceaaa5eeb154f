"""What a store has of keyspaces: definitions, assignments, journals, checkpoints; and where."""
