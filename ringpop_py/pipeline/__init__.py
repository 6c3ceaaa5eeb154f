"""A job that brings data into a keyspace, described by a TOML file; docs/spark.md is its guide.

What only reads the file (`document`, `settings`) knows nothing of Spark, so a mistake in it shows
before anything is started. `running` does the work.
"""
