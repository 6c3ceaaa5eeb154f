"""The synchronous clients, made from those in `aio`."""
