"""Draw faults, and see whether the first line of `check` names each 15 seconds later.

Usage: python -m tests.e2e.night [--rounds N] [--only FAULT]
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.night.faults import FAULTS, SEEN_WITHIN_S, Stand, why_not


def first_line(name: str, folder: Path) -> tuple[bool, list[str]]:
    """Return whether the first line of `check` names the fault *name*, and all its lines."""
    make, pattern = FAULTS[name]
    with Stand(folder) as stand, make(stand):
        time.sleep(SEEN_WITHIN_S)  # what is measured: it is named by then
        lines = stand.check()
        victim = re.escape(stand.victim.name)
        return bool(re.search(pattern.replace("{victim}", victim), lines[0])), lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="night", description=__doc__)
    parser.add_argument("--rounds", type=int, default=len(FAULTS), metavar="N")
    parser.add_argument("--only", choices=FAULTS, metavar="FAULT")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args()
    if why := why_not():
        print(why)
        return 2
    chance, named = random.Random(options.seed), 0
    for number in range(1, options.rounds + 1):
        name = options.only or chance.choice(sorted(FAULTS))
        with tempfile.TemporaryDirectory(prefix="night-") as folder:
            is_named, lines = first_line(name, Path(folder) / "stand")
        named += is_named
        print(f"{number:3} {name:20} {'named' if is_named else 'MISSED'}  {lines[0]}", flush=True)
        if not is_named:
            print("\n".join(lines[1:]))
    print(f"{named} of {options.rounds} faults are named by the first line of check")
    return 0 if named == options.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
