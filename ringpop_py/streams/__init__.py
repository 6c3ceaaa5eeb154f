"""Keyed stages: records of sources come to the owners of their keys, each once."""
