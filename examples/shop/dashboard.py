"""The shop's dashboard: it watches, and keeps what it has counted together with its position.

python dashboard.py FILE PEER...
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ringpop_py import Client, KeyspaceClient, RingpopError
from ringpop_py.errors import WatchGap


class Dashboard:
    """What was counted, and up to where: one file, which is replaced as a whole."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.counts: dict[str, Counter[str]] = {}
        self.position: str | None = None
        if file.exists():
            kept = json.loads(file.read_text())
            self.position = kept["position"]
            self.counts = {kind: Counter(counts) for kind, counts in kept["counts"].items()}

    def count(self, key: str, value: Any) -> None:  # noqa: ANN401 - of each kind another
        """Count the change of a key; *value* is None if it was deleted, or has expired."""
        kind, _, rest = key.partition("/")
        counts = self.counts.setdefault(kind, Counter())
        if kind == "sale":
            counts[rest.partition("/")[0].strip("{}")] += value
        elif kind == "book":
            counts.update(value)
        elif kind in ("hold", "claim"):  # each is put once, and deleted once
            counts["open"] += -1 if value is None else 1
        else:
            del self.counts[kind]

    def keep(self, position: str | None) -> None:
        """Replace the file."""
        self.position = position
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps({"position": position, "counts": self.counts}))
        os.replace(temporary, self._file)  # noqa: PTH105 - it has to be this call

    def follow(self, shop: KeyspaceClient) -> None:
        """Count what changes from the position on, for ever."""
        try:
            for change in shop.watch(after=self.position, existing=self.position is None):
                self.count(change.key, change.value)
                self.keep(str(change.position))
        except WatchGap:  # away for too long: count what is there, and go on from there
            self.counts.clear()
            self.keep(None)


def main(file: Path, peers: list[str]) -> None:
    """Follow the shop, through any of its hosts."""
    dashboard = Dashboard(file)
    for peer in itertools.cycle(peers):
        try:
            with Client(peer) as client, KeyspaceClient(client, "shop") as shop:
                dashboard.follow(shop)
        except RingpopError as error:
            print(f"dashboard: {error}", file=sys.stderr, flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
