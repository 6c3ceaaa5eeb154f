"""The data source `ringpop`: keyspaces as DataFrames, and rows into keyspaces exactly once."""
