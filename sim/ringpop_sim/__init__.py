"""The simulator: clusters of the product's own nodes, on a heap of events, in virtual time."""
