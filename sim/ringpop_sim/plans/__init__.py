"""Plans: a cluster and what happens to it, as data."""
