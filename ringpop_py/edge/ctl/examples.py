"""The end of each command's ``--help``: examples, and what the columns of its table mean."""

from __future__ import annotations

from textwrap import indent
from typing import Final

EXAMPLES: Final = {
    "keyspace get": """\
ringpopctl keyspace get carts user:42
ringpopctl keyspace get carts user:42 --watch
""",
    "keyspace put": """\
ringpopctl keyspace put carts user:42 '["tea"]'
ringpopctl keyspace put carts user:42 - --if-absent
ringpopctl keyspace put carts user:42 '["tea"]' --expires-in 1800
ringpopctl keyspace put carts user:42 '["tea"]' --expires-at 2030-01-31T09:00:00Z
""",
    "keyspace delete": "ringpopctl keyspace delete carts user:42 --yes",
    "keyspace watch": """\
ringpopctl keyspace watch carts --prefix user: --existing
ringpopctl keyspace watch carts --key user:42 --format json
""",
    "rtt": """\
ringpopctl rtt n1 n4

MS    the recent mean of the round trips of pings, in milliseconds
""",
    "monitor": """\
ringpopctl monitor --level debug
ringpopctl monitor n4
""",
    "debug": "ringpopctl debug --out bundle.tar.gz",
    "config check": "ringpopctl config check /etc/ringpop/node.toml --listen 10.0.0.1:3000",
    "store verify": "ringpopctl store verify /var/lib/ringpop --keyspace carts",
    "members": """\
ringpopctl members
ringpopctl members --watch 5

STATUS       alive, suspect, faulty, leave or tombstone; then damped or draining
INCARNATION  the member's own version, which it raises when it refutes or changes
""",
    "views": """\
ringpopctl views

CHECKSUM  of the member list: members with the same one see the same cluster
COUNT     how many members have it
""",
    "check": "ringpopctl check --members 5",
    "leaders": """\
ringpopctl leaders --watch

TERM   a number that grows with each holder
SINCE  when the term began, by the holder's clock
BEAT   when the holder renewed the name last
""",
    "leader": """\
ringpopctl leader mailer
ringpopctl leader mailer --resign --yes
""",
    "ticks": """\
ringpopctl ticks
ringpopctl ticks rollup --watch

NEXT     the tick that runs, or runs next
ATTEMPT  how often it was begun
OVERDUE  for how long it has been due, and has not ended
LAST     the tick that was begun last
""",
    "lookup": """\
ringpopctl lookup user:42
ringpopctl lookup user:42 --explain
ringpopctl lookup user:42 --keyspace counts

DESIRED  the member that should serve the partition
EPOCH    rises whenever the partition gets another owner
""",
    "trace": """\
ringpopctl trace user:42 --keyspace counts

SAYS       the owner, in this member's view
PARTITION  its number, and its status there
MS         milliseconds until the member had answered
""",
    "streams": """\
ringpopctl streams clicks

READER   the member that reads the split
READ     the position up to which it has read; COUNTED: up to which records are in the keyspace
HELD     records that wait in memory, or are under way
REFUSED  records that were left out, because they could not be used
""",
    "dataflows": """\
ringpopctl dataflows sessions --watch

GROUPS     the groups of keys, [FIRST,END), that this worker has
SPLITS     how many splits of the sources it reads
WATERMARK  the time of events up to which all have arrived
LATE       records that came after it, and were left out
""",
    "top": """\
ringpopctl top --sort cpu
ringpopctl top -n 1 --format json

CPU %       of one processor
REQUESTS/S  requests of the application that were handled here, or passed on
SLOW        how slow the member takes itself for; 0 is healthy
""",
    "ring": """\
ringpopctl ring

SHARE      the part of all hashes that the member owns
OVER MEAN  that part, as a multiple of the mean
""",
    "why": "ringpopctl why 10.0.0.3:3000",
    "events": "ringpopctl events --follow --format json",
    "stats": """\
ringpopctl stats
ringpopctl stats --format json

In JSON, figures are not rounded, and have their units in their names.
""",
    "leave": """\
ringpopctl leave 10.0.0.3:3000 --dry-run
ringpopctl --peer 10.0.0.3:3000 leave

At a terminal it asks first. For maintenance, use `drain`: others consider a member that left gone.
""",
    "join": "ringpopctl join 10.0.0.3:3000",
    "drain": """\
ringpopctl drain 10.0.0.3:3000 --dry-run
ringpopctl drain 10.0.0.3:3000 --end --timeout 300
ringpopctl --peer 127.0.0.1:3000 drain --yes

At a terminal it asks first.
""",
    "undrain": "ringpopctl undrain 10.0.0.3:3000",
    "keygen": "ringpopctl keygen /etc/ringpop/cluster.key",
    "keys list": """\
ringpopctl keys list /etc/ringpop/cluster.key

ISSUED UNTIL  what was issued in that name before this moment no longer counts
""",
    "keys add": "ringpopctl keys add /etc/ringpop/cluster.key",
    "keys use": "ringpopctl keys use /etc/ringpop/cluster.key 3f9a1c",
    "keys remove": "ringpopctl keys remove /etc/ringpop/cluster.key 3f9a1c",
    "keys revoke": "ringpopctl keys revoke /etc/ringpop/cluster.key --name nightly --role client",
    "keys issue": """\
ringpopctl keys issue /etc/ringpop/cluster.key nightly.pem --name nightly --days 90
""",
    "keys token": "ringpopctl keys token /etc/ringpop/cluster.key --name dashboards --days 30",
    "keys authority": "ringpopctl keys authority /etc/ringpop/cluster.key",
    "damp show": """\
ringpopctl damp show 10.0.0.3:3000

SCORE     500 for each suspicion, death and return; it halves every five minutes
STATE     flapper: other members are asked; damped: they agreed
VERDICTS  how many there were; the member is damped after an odd number
BACK IN   until its score is low enough, if it stays quiet
""",
    "damp clear": "ringpopctl damp clear 10.0.0.3:3000",
    "reap": """\
ringpopctl reap --dry-run
ringpopctl reap --yes

At a terminal it asks first. Without this command they become tombstones in a day.
""",
    "force-leave": """\
ringpopctl force-leave 10.0.0.3:3000 --dry-run
ringpopctl force-leave 10.0.0.3:3000

For a member that never comes back. One that is alive is refused: `leave` is for that.
""",
    "heal": "ringpopctl heal",
    "partitions": """\
ringpopctl partitions --keyspace counts --all

PARTITIONS  how many the member serves; DESIRED: how many it should
COMING      how many it is about to gain
TROUBLE     for how many its last request to the store failed
EPOCH       rises whenever the partition gets another owner
CHECKPOINT  the epoch and number of the last one
""",
    "keyspace list": """\
ringpopctl keyspace list

GENERATION  rises when the keyspace is dropped and created again, or restored
SERVED      partitions that have an owner; SETTLED: that are where they should be
""",
    "keyspace show": """\
ringpopctl keyspace show counts

HANDOFFS     partitions that came to the member since it began
PAUSE P50    how long they were not served meanwhile: the median; MAX: the longest
CHECKPOINTS  whole ones; PARTIAL: only what had changed
""",
    "keyspace create": """\
ringpopctl keyspace create counts --partitions 64
ringpopctl keyspace create sessions --mode memory
ringpopctl keyspace create shop --hash-tags
""",
    "keyspace set": "ringpopctl keyspace set counts --min-cluster-size 1",
    "keyspace drop": "ringpopctl keyspace drop counts",
    "keyspace bring-back": """\
ringpopctl keyspace bring-back counts
ringpopctl keyspace bring-back counts --generation 2
""",
    "rebalance": """\
ringpopctl rebalance counts --dry-run
ringpopctl rebalance counts --max-moves 10
""",
    "checkpoint now": "ringpopctl checkpoint now counts --keep 5",
    "checkpoint list": """\
ringpopctl checkpoint list counts

BY  the member that made it
""",
    "checkpoint restore": """\
ringpopctl checkpoint restore counts latest --into counts-yesterday
ringpopctl checkpoint restore counts epoch-7
""",
    "shuffle list": """\
ringpopctl shuffle list

STATE      put: rows arrive; get: they can be read
INTERVALS  the parts into which the rows are cut, in the order of their keys
""",
    "shuffle show": """\
ringpopctl shuffle show night --plot night.html

OWNS   how many intervals the node serves; HOLDS: how many are merged there
DISK   how much its rows take
""",
    "shuffle end": "ringpopctl shuffle end night --attempt 0 --attempt 3",
    "shuffle delete": "ringpopctl shuffle delete night",
    "wait": """\
ringpopctl wait --for converged --members 5
ringpopctl wait --for partitions --keyspace counts --timeout 120
""",
}
"""By command: its examples, one a line; then, after an empty line, what its output means."""


def epilog_of(prog: str) -> str | None:
    """Return the end of the help of the command *prog* (``ringpopctl keyspace list``)."""
    text = EXAMPLES.get(prog.removeprefix("ringpopctl "))
    if text is None:
        return None
    examples, _, meaning = text.partition("\n\n")
    return f"examples:\n{indent(examples.rstrip(), '  ')}\n\n{meaning}"
