"""What ringpopctl finds out: what is wrong, why, logs, round trips, bundles, files, stores."""
