"""Bringing a request to the owner of its key: the decisions (pure) and the calls (trio)."""
