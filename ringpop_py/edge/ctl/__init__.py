"""ringpopctl: what an operator asks of a running cluster, and has it do."""
