"""The reason in what Spark says when something fails."""

from __future__ import annotations

import pytest

from ringpop_py.base.errors import KeyspaceUnknown
from ringpop_py.spark.pipeline.session import reason_of

TASK = """\
An error occurred while calling o98.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed
  File "/opt/worker.py", line 1, in main
Traceback (most recent call last):
  File "/opt/worker.py", line 98, in worker_run
    main(infile, outfile)
ringpop_py.base.errors.BadKey: 3 rows have no key in column 'tailnum'; filter them out

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)
"""
CAUSES = """\
Traceback (most recent call last):
  File "x.py", line 1, in f
ringpop_py.base.errors.ConnectFailed: refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
ringpop_py.base.errors.MaxRetriesExceeded: node-1 did not take 3 rows
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyspaceUnknown("there is none"), "there is none"),
        (ValueError(TASK), "BadKey: 3 rows have no key in column 'tailnum'; filter them out"),
        (ValueError(CAUSES), "MaxRetriesExceeded: node-1 did not take 3 rows"),
        (
            ValueError("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03\n\tat a.b"),
            "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03",
        ),
        (
            ValueError("Traceback (most recent call last):\n  File x\nZeroDivisionError: by zero"),
            "ZeroDivisionError: by zero",
        ),
        (
            ValueError("An error occurred while calling o1.load.\n: x.Y: [NOT_FOUND] csw\n\tat a"),
            "x.Y: [NOT_FOUND] csw",
        ),
        (ValueError(), "ValueError"),
    ],
)
def test_the_reason_is_what_was_raised_last(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


def test_a_long_reason_is_cut() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) == 600
