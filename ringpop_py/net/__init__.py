"""Calls between processes: TChannel's frames, connections and their deadlines, keys, HTTP.

It promises that a call has one outcome, which says whether it may have run; that a hostile peer
ends at most its own connection; and that a caller without a key of the cluster gets nothing.

Begin with `transport/link.py`: what happens on a connection. Frames without I/O are in `wire`,
certificates and what they permit in `security`, HTTP to an application beside a node in `http`.

It imports `base` and `member`; `wire` is pure.
"""
