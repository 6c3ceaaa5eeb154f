"""How often this process was forked: whatever has an identity asks whether it is still its owner.

A fork copies counters, tokens and sockets. If both copies went on with them, two writes would have
one id, and two processes would read one stream of answers. So each such object keeps the count at
which it was made, and takes a new identity when the count differs. An object can only be in the
process that made it and in descendants of it, which have higher counts.
"""

from __future__ import annotations

import os
from typing import Final


class Forks:
    """How often this process was forked.

    Attributes:
        count: how many forks lie between the first Python process and this one.
    """

    def __init__(self) -> None:
        self.count = 0

    def forked(self) -> None:
        """Note that this process is a new one."""
        self.count += 1


FORKS: Final = Forks()
os.register_at_fork(after_in_child=FORKS.forked)
