"""Rows on the move: shuffles, streams into keyspaces, and dataflows.

It promises that each record counts once, whichever process dies; a shuffle loses no row if one
member at a time dies, and none silently. docs/shuffle.md, docs/streams.md and docs/dataflows.md are
guides.

Begin with `shuffle/protocol/record.py`, `streams/stream.py` or `dataflow/dataflow.py`. `exchange`
is the pure part of dataflows: who gets a record, and where an epoch ends.

It imports everything but `spark` and `edge`. `exchange` and `shuffle/protocol` are pure.
"""
