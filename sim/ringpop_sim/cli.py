"""ringpop-sim: run, break and explain whole clusters in virtual time."""
