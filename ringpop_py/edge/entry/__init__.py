"""The entry for web applications: a request goes to the host that owns its key (`asgi`, `wsgi`)."""
