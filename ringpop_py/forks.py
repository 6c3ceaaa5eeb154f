"""How often this process was forked: whatever has an identity asks whether it is still its owner.

A fork copies counters, tokens and sockets. If both copies went on with them, two writes would have
one id, and two processes would read one stream of answers. So each such object keeps the count at
which it was made, and takes a new identity when the count differs. An object can only be in the
process that made it and in descendants of it, which have higher counts.
"""

from __future__ import annotations

import os


class _Forks:
    count = 0


def forks_count() -> int:
    """Return how many forks lie between the first Python process and this one."""
    return _Forks.count


def _forked() -> None:
    _Forks.count += 1


os.register_at_fork(after_in_child=_forked)
