"""What ringpopctl finds out: what is wrong and why, logs, round trips, bundles, files and stores."""
