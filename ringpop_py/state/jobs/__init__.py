"""Rows of many tasks that take effect together or not at all."""
