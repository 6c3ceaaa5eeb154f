"""What docs/spark.md shows of functions is run as it stands, its addresses and names replaced.

The handler of `route_answers` runs in the daemons (`tests/spark/batch_app.py`).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from tests.spark.snippets import snippets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ringpop_demo.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    rows = [(f"N{index % 7}", float(index), 100) for index in range(50)]
    return spark.createDataFrame(rows, "tailnum string, arr_delay double, distance int")


@pytest.fixture
def run(cluster: Cluster, memory_keyspace: str, spark: SparkSession, df: DataFrame) -> Any:  # noqa: ANN401 - a function
    """Runs code statement by statement; values that are DataFrames are computed."""
    from pyspark.sql import DataFrame

    names: dict[str, Any] = {"spark": spark, "df": df}

    def run(code: str) -> dict[str, Any]:
        code = code.replace('"flights"', repr(memory_keyspace))
        for index, address in enumerate(cluster.addresses):
            code = code.replace(f"127.0.0.1:{3000 + index}", address)
        for statement in ast.parse(code).body:
            if isinstance(statement, ast.Expr):
                value = eval(ast.unparse(statement), names)  # noqa: S307 - our own document
                names["last"] = value.collect() if isinstance(value, DataFrame) else value
            else:
                exec(ast.unparse(statement), names)  # noqa: S102
        return names

    return run


def test_owners_of_keys(run: Any) -> None:  # noqa: ANN401
    (code,) = snippets("Who owns a key")

    names = run(code)

    assert sum(row["count"] for row in names["last"]) == 50


def test_partitions_of_keys(run: Any) -> None:  # noqa: ANN401
    (code,) = snippets("In which partition a key is")

    names = run(code)

    assert sum(row["count"] for row in names["last"]) == 50


def test_rows_of_one_owner_together(run: Any) -> None:  # noqa: ANN401
    (code,) = snippets("Rows of one owner together")
    run(snippets("Who owns a key")[0])

    names = run(code)

    assert names["parts"].rdd.getNumPartitions() == 3 * 4 + 1
    assert names["parts"].count() == 50


def test_what_there_is(run: Any, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN401
    (code,) = snippets("What there is")

    run(code)

    shown = capsys.readouterr().out
    assert "node-2" in shown
    assert "online" in shown


def test_rows_to_their_owners(run: Any, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN401
    (code,) = snippets("Rows to their owners")

    names = run(code)

    assert names["report"].rows_sent == 50
    assert "50 rows to" in capsys.readouterr().out


def test_what_owners_answer(run: Any) -> None:  # noqa: ANN401
    code, _handler = snippets("What owners answer")

    names = run(code)

    fares = {row.tailnum: row.fare for row in names["answers"].collect()}
    assert fares == {**dict.fromkeys((f"N{index}" for index in range(7)), None), "N1": 80.0}
    assert len(names["last"]) == 50


def test_rows_with_what_a_keyspace_has(run: Any, cluster: Cluster, memory_keyspace: str) -> None:  # noqa: ANN401
    (code,) = snippets("Rows with what a keyspace has of them")
    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, memory_keyspace) as there:
        there.put("N1", {"flights": 3, "minutes": 5})
        try:
            names = run(code)
        finally:
            there.delete("N1")

    found = {(row.tailnum, row.flights, row.minutes) for row in names["last"]}
    assert found == {("N1", 3, 5), *((f"N{index}", None, None) for index in (0, 2, 3, 4, 5, 6))}
