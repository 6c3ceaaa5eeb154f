"""``python -m ringpop_py.edge.cli.shuffler``: the process that holds rows of shuffles, with a log.

A node starts it for itself (`ringpop_py.flow.shuffle.server.child`); it is not a command for
people.
"""

from __future__ import annotations

import sys

from ringpop_py.edge.cli.logs import Logs
from ringpop_py.flow.shuffle.server.process import main as run

if __name__ == "__main__":
    logs = Logs("text", "info")
    code = run()
    logs.flush()
    sys.exit(code)
