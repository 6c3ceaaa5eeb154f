"""Streams: records of sources come to the owners of their keys, and each counts once."""
