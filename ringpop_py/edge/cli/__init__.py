"""The command lines: argv in, exit code out."""
