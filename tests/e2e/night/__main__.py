"""Draw faults, and see whether the first line of `check` names each 15 seconds later."""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.night.faults import FAULTS, NODES, SEEN_WITHIN_S, Stand
from tests.e2e.night.hosts import Hosts, why_no_hosts


def seen_of(name: str, folder: Path, *, looks: int = 1) -> tuple[bool, list[str]]:
    """Return whether the first line of `check` names the fault *name*, and all its lines.

    There is one look when the time is over, or *looks* of them from the beginning on.
    """
    make, pattern = FAULTS[name]
    with Stand(folder) as stand, make(stand):
        for word, meant in {"victim": stand.victim.name, "stranger": Hosts.address(NODES)}.items():
            pattern = pattern.replace(f"{{{word}}}", re.escape(meant))
        for _ in range(looks):
            time.sleep(SEEN_WITHIN_S if looks == 1 else 1)  # what is measured
            lines = stand.check()
            if re.search(pattern, lines[0]):
                return True, lines
        return False, lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.night", description=__doc__)
    text = "how many faults to draw (one of each, in order)"
    parser.add_argument("--rounds", type=int, metavar="N", help=text)
    parser.add_argument("--only", choices=FAULTS, metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the draw (0)")
    options = parser.parse_args()
    if why := why_no_hosts():
        print(why)
        return 2
    chance = random.Random(options.seed)
    drawn = [*FAULTS] if options.rounds is None else chance.choices([*FAULTS], k=options.rounds)
    drawn = drawn if options.only is None else [options.only] * (options.rounds or 1)
    named = 0
    for number, name in enumerate(drawn, 1):
        with tempfile.TemporaryDirectory(prefix="night-") as folder:
            is_named, lines = seen_of(name, Path(folder) / "stand")
        named += is_named
        print(f"{number:3} {name:20} {'named' if is_named else 'MISSED'}  {lines[0]}", flush=True)
        if not is_named:
            print("\n".join(lines[1:]), flush=True)
    print(f"{named} of {len(drawn)} faults are named by the first line of check")
    return 0 if named == len(drawn) else 1


if __name__ == "__main__":
    sys.exit(main())
