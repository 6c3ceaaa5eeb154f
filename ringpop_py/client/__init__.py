"""The cluster as seen by a program that is no member of it: an application, or a task of Spark.

It promises the results and errors that a node's own application gets; a call is repeated only if it
cannot have run, or may run twice. It loads neither trio nor the daemon, and survives forks.

Begin with `aio/keyspaces.py` and `aio/client.py`. What stands above a connection is written once,
in `aio`; `sync` is made from it (`python -m tests.twins`). `aio/dispatcher.py` brings requests to
owners, `jobs.py` is the client of jobs, `calls.py` has calls and answers (pure), connections are in
`lines`.

It imports `base`, `member`, `net` (without its transport), `route` (what is pure) and `state`.
"""
