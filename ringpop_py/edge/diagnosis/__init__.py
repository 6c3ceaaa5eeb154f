"""What ringpopctl finds out for a bug report: logs, round trips, bundles, bad files and stores."""
