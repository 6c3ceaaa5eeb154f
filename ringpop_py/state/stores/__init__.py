"""Stores: in memory, in a folder, in SQLite, in S3, in etcd. `open_store` opens any by its URL.

`rocks.py` is no store: it keeps entries of large partitions at their node.
"""

from ringpop_py.state.stores.urls import open_store as open_store
