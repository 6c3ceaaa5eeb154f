"""Plans: a cluster and what is done to it, as data."""
