"""A job that brings data into a keyspace, described by a TOML file; docs/pipelines.md is its guide.

The code that only reads the file (`settings`) does not need Spark, so a mistake in the file shows
before anything is started. `run` does the work.
"""
