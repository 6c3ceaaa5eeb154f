"""``python -m tests.golden [--record]``: what messages are now, against what was recorded.

The exit code is 1 if they differ. With ``--record`` the files say afterwards what is now: look at
the difference, for it is what nodes and stores of an earlier version would meet.
"""

from __future__ import annotations

import sys
from difflib import unified_diff
from typing import TYPE_CHECKING

from tests.golden.recording import all_now

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Print what differs; with ``--record``, record it."""
    differs = False
    for file, now in all_now().items():
        lines = sorted(f"{name} {said}\n" for name, said in now().items())
        before = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        difference = list(unified_diff(before, lines, f"{file.name} as recorded", "now", n=0))
        sys.stdout.writelines(difference)
        differs |= bool(difference)
        if "--record" in argv:
            file.write_text("".join(lines), encoding="utf-8")
    return 0 if "--record" in argv or not differs else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
