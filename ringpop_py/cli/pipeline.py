"""``ringpop-pipeline``, where users have always found its file and its module."""

import sys

from ringpop_py.edge.cli.pipeline import main

if __name__ == "__main__":
    sys.exit(main())
