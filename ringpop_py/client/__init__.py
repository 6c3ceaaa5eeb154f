"""The cluster as seen by a program that is no member of it: an application, or a task of Spark.

It promises the results and errors that a node's own application gets; a call is repeated only if it
cannot have run, or may run twice. It loads neither trio nor the daemon, and survives forks.

Begin with `keyspace_client.py` and `client.py`; `aio.py` is the asynchronous client, `jobs.py` that
of jobs. `dispatcher.py` brings requests to owners; connections and keys are in `lines`.

It imports `base`, `member`, `net` (without its transport), `route` (what is pure) and `state`.
"""
