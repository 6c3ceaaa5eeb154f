"""State by key: keyspaces of partitions with one writer each, durable or in memory; jobs, actors.

It promises that nothing acknowledged is lost, nothing is applied twice, and reads see all before
them, as docs/guarantees.md says for each mode.

Begin with `partition/machine.py` (how a partition comes and goes), then `journal/journal.py`.

From below: `journal`, `table` (what a partition holds, and the operations), `placement` (who should
own it), `rows` (many values as columns), `stores`, `catalog` (what a store has of keyspaces); then
`partition`, `shares` (one keyspace at one node), `jobs`, `durable` and `memory` (the two modes),
`actors`, `keyspaces` (what applications call), `backups`. `requests` and `messages` are what
callers send.

It imports `base`, `member`, `net` and `route`. `journal`, `table`, `placement` and `partition` are
pure.
"""
