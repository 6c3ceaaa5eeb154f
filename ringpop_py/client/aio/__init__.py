"""The asynchronous clients. Their twins in `sync` are made from them (`python -m tests.twins`)."""
