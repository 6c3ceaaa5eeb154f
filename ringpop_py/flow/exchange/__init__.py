"""The exchange between workers of a dataflow: who gets a record, and where an epoch ends. Pure."""
