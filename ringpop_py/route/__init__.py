"""A request comes to the owner of its key: `handle_or_proxy`, and requests for partitions.

It promises that a request is handled by one member that considers itself the owner, or ends with an
error that says whether it may have run; it is forwarded once and never onwards.

Begin with `proxy/forward.py`, and `proxy/receive.py` for the other side. `errand.py` brings the
parts of a request to the owners of their partitions (pure); `proxy/retry.py` repeats a whole one
(pure); `proxy/web_entry.py` is what middlewares of web applications ask;
`quorum/replication.py` sends one request to several members of a key.

It imports `base`, `member` and `net`. What decides is pure; what carries it out is on trio.
"""
