"""The checksum that a list of rows should have, computed anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.member.swim.buckets import SUM_MASK
from ringpop_py.member.swim.checksum import checksum_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.base.dialect import Dialect
    from ringpop_py.member.swim.member import Member


class ReferenceChecksum:
    """Most processes have the same rows, so where rows are summed, each is hashed once for all."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._shares: dict[Member, int] = {}

    def of(self, rows: Sequence[Member]) -> int:
        """Return the checksum of *rows*."""
        if self._dialect.ordered_checksum:
            return self._computed(rows)
        shares, total = self._shares, 0
        for row in rows:
            share = shares.get(row)
            if share is None:
                share = shares[row] = self._computed([row])
            total += share
        return total & SUM_MASK

    def _computed(self, rows: Sequence[Member]) -> int:
        checksum = checksum_for(self._dialect)
        for row in rows:
            checksum.replace(row.name, row)
        return checksum.value
