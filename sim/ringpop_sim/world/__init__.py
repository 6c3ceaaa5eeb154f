"""A world of nodes on a heap of events, in virtual time."""
