"""What `bench spark` counts, and that its parts are there. No session is started."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if find_spec("pyspark") is None:
    pytest.skip("pyspark is not installed", allow_module_level=True)

from tests.bench.__main__ import main
from tests.bench.dataframes import instead
from tests.bench.dataframes.inputs import TOTALS, WrongTotals, check, millions, ordered
from tests.bench.dataframes.turns import Way, rates
from tests.bench.dataframes.writes import rows_of
from tests.bench.spark import PARTS

if TYPE_CHECKING:
    from pathlib import Path


def test_each_part_has_its_function() -> None:
    for path in PARTS.values():
        module, _, function = path.partition(".")

        assert callable(getattr(import_module(f"tests.bench.dataframes.{module}"), function))


def test_ways_take_turns_and_each_turn_of_each_is_checked() -> None:
    said: list[str] = []

    def way(name: str) -> Way:
        return Way(lambda: said.append(f"run {name}"), 10, lambda: said.append("check"))

    ways = {name: way(name) for name in ("a", "b")}

    found = rates(ways, turns=2)

    assert said == ["run a", "check", "run b", "check"] * 3  # the first of them is not counted
    assert found.keys() == {"a", "b"}


def test_a_way_that_need_not_warm_up_is_left_out_of_the_turn_that_does_not_count() -> None:
    runs: list[int] = []

    rates({"slow": Way(lambda: runs.append(1), 10, warm=False)}, turns=2)

    assert len(runs) == 2


def test_no_rate_comes_of_a_way_whose_result_is_wrong() -> None:
    def wrong() -> None:
        raise WrongTotals

    with pytest.raises(WrongTotals):
        rates({"a": Way(lambda: None, 10, wrong)}, turns=1)


def totals(**miles: int) -> pa.Table:
    rows = [{"miles": value, "key": key, "minutes": 1} for key, value in miles.items()]
    return ordered(pa.Table.from_pylist(rows))


def test_totals_are_compared_in_whatever_order_they_come() -> None:
    check(totals(b=2, a=1), totals(a=1, b=2), 1, "it")

    assert totals(b=2, a=1).schema == TOTALS


@pytest.mark.parametrize(
    "found", [totals(a=1, b=3), totals(a=1), totals(a=1, b=2, c=0)], ids=["other", "fewer", "more"]
)
def test_totals_that_are_not_those_of_spark_are_refused(found: pa.Table) -> None:
    with pytest.raises(WrongTotals, match="it: "):
        check(found, totals(a=1, b=2), 1, "it")


def test_rows_that_were_written_twice_have_to_be_there_twice() -> None:
    once, twice = totals(a=1), pa.table([["a"], [2], [2]], schema=TOTALS)

    check(twice, once, 2, "it")

    with pytest.raises(WrongTotals):
        check(once, once, 2, "it")


def test_a_write_is_compared_with_counting_with_the_daemon_and_with_parquet() -> None:
    found = {"direct": 2e6, "daemon": 1e6, "count": 4e6, "parquet": 8e6}

    rows = list(rows_of("spark.write.x", found))

    assert [(row.name, row.value, row.ratio, row.ok) for row in rows] == [
        ("spark.write.x", 2.0, 0.5, False),
        ("spark.write.x.daemon", 1.0, 0.5, False),
        ("spark.write.x", 2.0, 0.25, None),
    ]


def test_a_write_that_was_combined_first_is_compared_with_counting_and_with_the_write() -> None:
    found = {"direct": 2e6, "daemon": 1e6, "count": 4e6, "parquet": 8e6, "combined": 3e6}

    *_, counting, direct = rows_of("spark.write.x", found)

    assert counting.name == direct.name == "spark.write.x.combined"
    assert [(row.value, row.ratio, row.ok) for row in (counting, direct)] == [
        (3.0, 0.75, True),
        (3.0, 1.5, None),
    ]


def test_a_place_that_this_machine_lacks_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(instead, "JARS", tmp_path)

    for name, opened in instead.PLACES.items():
        with opened(None) as place:  # type: ignore[arg-type]  # it is not looked at
            assert place is None, name
    assert instead.jars() == []


def test_inputs_are_named_by_their_millions_of_rows() -> None:
    assert [millions(rows) for rows in (10_000_000, 200_000)] == ["10m", "0.2m"]


def test_benchmarks_with_options_of_one_name_can_be_listed_and_named_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["spark", "state", "--list"]) == 0

    assert {"protocol", "spark", "state"} <= set(capsys.readouterr().out.split())
