"""The names of a pipeline's file agree with each other, and with the data source."""

from __future__ import annotations

import pytest

from ringpop_py.spark.options import OPTIONS
from ringpop_py.spark.pipeline.settings import KNOWN, problem_of_option, takes_text


@pytest.mark.parametrize(
    ("path", "is_text"),
    [
        (["job"], True),
        (["keyspace", "name"], True),
        (["columns", "ones", "value"], True),
        (["keyspace", "partitions"], False),
        (["columns", "ones"], False),
        (["source", "options", "header"], False),
        (["unknown", "name"], False),
    ],
)
def test_it_is_known_what_is_a_text(path: list[str], *, is_text: bool) -> None:
    assert takes_text(path) == is_text


@pytest.mark.parametrize("option", [each.name for each in OPTIONS if "write" in each.purposes])
def test_each_option_of_a_write_is_taken_or_said_elsewhere_in_the_file(option: str) -> None:
    problem = problem_of_option(option, "", streaming=False)

    assert problem is not None
    if problem.startswith("is set by"):
        place = problem.split()[3]
        table, _, name = place.rpartition(".")
        assert name in KNOWN[table]
    else:
        assert problem == "is empty: give it a value, or leave it out"


def test_a_stream_takes_what_a_batch_does() -> None:
    assert problem_of_option("maxInFlight", "4", streaming=True) is None
    assert problem_of_option("MAXINFLIGHT", "4", streaming=False) is None
