"""A pipeline's file: what it means, and all that can be wrong with it before Spark starts."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.pipeline.settings import Column, Pipeline, load_pipeline, pipeline_of

if TYPE_CHECKING:
    from pathlib import Path

SMALLEST = """
key = "tailnum"
[source]
format = "parquet"
path = "flights"
[keyspace]
name = "aircraft"
"""
TOTALS = """
[columns]
flights = "count"
minutes = { value = "coalesce(arr_delay, 0)", by = "add" }
distance = "max"
"""


def parsed(text: str) -> Pipeline:
    return pipeline_of(tomllib.loads(text), "job")


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return str(caught.value).splitlines()


def test_a_few_lines_suffice() -> None:
    pipeline = parsed(SMALLEST)

    assert pipeline.name == "job"
    assert pipeline.stream is None
    assert pipeline.keyspace.create
    assert pipeline.sink_options() == {
        "keyspace": "aircraft",
        "key": "tailnum",
        "peers": "127.0.0.1:3000",
        "onNullKey": "fail",
        "operation": "put",
    }


def test_columns_have_aggregations_and_sql_expressions() -> None:
    pipeline = parsed(SMALLEST + TOTALS)

    assert pipeline.columns == (
        Column("flights", "1", "count"),
        Column("minutes", "coalesce(arr_delay, 0)", "add"),
        Column("distance", "`distance`", "max"),
    )
    assert pipeline.sink_options()["operation"] == "`flights`=count,`minutes`=add,`distance`=max"


def test_a_list_of_columns_is_put_as_it_is() -> None:
    pipeline = parsed('columns = ["origin", "odd`name"]\n' + SMALLEST)

    assert pipeline.columns[1] == Column("odd`name", "`odd``name`", "put")
    assert pipeline.sink_options()["operation"] == "put"


def test_one_value_a_key_has_one_operation() -> None:
    pipeline = parsed('value = "distance * 2"\noperation = "add"\n' + SMALLEST)

    assert pipeline.sink_options()["operation"] == "add"
    assert pipeline.sink_options()["value"] == "value"


def test_a_stream_table_makes_it_a_stream() -> None:
    pipeline = parsed(SMALLEST + '[stream]\ncheckpoint = "/tmp/c"\ntrigger = "10 seconds"\n')

    assert pipeline.stream is not None
    assert pipeline.stream.trigger == "10 seconds"


def test_daemons_are_named_or_listed_in_a_file(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("127.0.0.1:4000\n127.0.0.1:4001\n")

    assert parsed(f'hosts = "{hosts}"\n' + SMALLEST).peers == ("127.0.0.1:4000", "127.0.0.1:4001")
    assert parsed('peers = "10.0.0.1:3000"\n' + SMALLEST).peers == ("10.0.0.1:3000",)
    assert pipeline_of(tomllib.loads(SMALLEST), "job", "10.0.0.2:3000").peers == ("10.0.0.2:3000",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "key: is missing: the column whose text is the key"),
        ("", "source: is missing: a [source] with a format, or with a table"),
        ("", "keyspace.name: is missing: the keyspace to write to"),
        ("source = 1", "source: is a table, not 1"),
        ("[source]\nformat='x'\ntable='y'", "source.format: give either format or table"),
        ("[source]\ntable='y'\npath='z'", "source.path: a table has no path"),
        ("[keyspace]\nname='n'\npartitions=0", "keyspace.partitions is"),
        (
            "[keyspace]\nname='n'\npartitons=8",
            "keyspace.partitons: unknown; did you mean keyspace.",
        ),
        ("[stream]\ntrigger='5 seconds'", "stream.checkpoint: is missing"),
        ("[stream]\ncheckpoint='c'\ntrigger='soon'", "stream.trigger: is 'available now' or"),
        ("job='x'\n[stream]\ncheckpoint='c'", "job: a stream names its jobs itself"),
        ("on_null_key='drop'", "on_null_key: is 'fail', 'skip' or 'count', not 'drop'"),
        ("hosts='h'\npeers=['a:1']", "hosts: peers and hosts both list daemons"),
        ("hosts='/nowhere'", "hosts: hosts file /nowhere: No such file"),
        ("peers=['nonsense']", "peers: "),
        ("columns = 3", "columns: is a list of columns, or a table"),
        ("[columns]\na='ad'", "columns.a: there is no aggregation 'ad'; did you mean 'add'?"),
        ("[columns]\na='x y'", "columns.a: 'x y' is not a name of an aggregation"),
        ("[columns]\na=1", "columns.a: is an aggregation such as"),
        ("[columns]\na={by='add', of='x'}", "columns.a.of: unknown; there are by, value"),
        ("value='x'\ncolumns=['y']", "value: value is all that a key has"),
        ("operation='add'\ncolumns=['y']", "operation: each of the columns has its own"),
        ("key='a'\ncolumns=['a']", "columns.a: is the key already"),
        ("key='value'\nvalue='x'", "key: a key column 'value' and a value: rename it"),
        ("[options]\nonNullKey='skip'", "options.onNullKey: is set by on_null_key here"),
        ("[options]\nmaxInFlght=4", "options.maxInFlght: unknown; did you mean maxInFlight?"),
        ("[options]\nzzz=4", "options.zzz: there is no option 'zzz'"),
        ("[options]\nflushrows='many'", "options.flushrows: is a whole number from 1 to"),
        ("[options]\nkeys='a'", "options.keys: is not for a write"),
        ("[options]\npath='/x'", "options.path: there is no option 'path': a keyspace has"),
        ("[options]\nretrySchedule='-1'", "options.retrySchedule: "),
        ("job='" + "ü" * 40 + "'", "job: is 1 to 96 printable characters"),
        ("[report]\nevery_s=0", "report.every_s: is a number of seconds above 0"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_place(text: str, problem: str) -> None:
    assert [line for line in problems_of(text) if line.startswith(problem)] != []


def test_all_mistakes_are_told_at_once_each_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('nmae = "x"\n' + SMALLEST.replace("format", "fromat"))

    with pytest.raises(ConfigError) as caught:
        load_pipeline(str(path))

    assert str(caught.value).splitlines() == [
        f"{path}: nmae: unknown; did you mean name?",
        f"{path}: source.fromat: unknown; did you mean source.format?",
        f"{path}: source.format: give either format or table (of Spark's catalog)",
    ]


def test_mistakes_in_options_are_told_at_once_with_all_others() -> None:
    text = SMALLEST.replace("path", "paht") + "[options]\nmaxInFlght=4\nflushRows='many'\n"

    assert [line.split(":")[0] for line in problems_of(text)] == [
        "source.paht",
        "options.maxInFlght",
        "options.flushRows",
    ]


def test_options_of_the_data_source_are_handed_on() -> None:
    pipeline = parsed(SMALLEST + "[options]\nmaxInFlight=4\nDistribution='daemon'\n")

    assert pipeline.sink_options()["maxInFlight"] == "4"
    assert not pipeline.target.direct
    assert parsed(SMALLEST).target.direct


@pytest.mark.parametrize(
    "override",
    ["job=2024-01-01", "job=20240101", "job = 2024-01-01T10:00:00Z ", "job=true", "job='2024'"],
)
def test_an_override_of_a_text_is_text_whatever_else_it_may_look_like(
    override: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(SMALLEST)

    pipeline = load_pipeline(str(path), [override], {})

    assert pipeline.job == override.partition("=")[2].strip(" '")


def test_overrides_of_other_kinds_are_what_they_look_like(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(SMALLEST)
    overrides = [
        *("keyspace.partitions=8", "keyspace.create=false", "columns.ones.value=1"),
        *("source.options.since=2024-01-01", "source.path=2024", 'peers=["a:1", "b:2"]'),
    ]

    pipeline = load_pipeline(str(path), overrides, {})

    assert (pipeline.keyspace.settings, pipeline.keyspace.create) == ({"partitions": 8}, False)
    assert pipeline.columns == (Column("ones", "1", "put"),)
    assert pipeline.source.options == {"since": "2024-01-01"}
    assert (pipeline.source.path, pipeline.peers) == (("2024",), ("a:1", "b:2"))


def test_an_application_may_have_aggregations_of_its_own() -> None:
    pipeline = parsed(SMALLEST + '[columns]\nseen = "hyperloglog"\n')

    assert pipeline.columns[0].aggregation == "hyperloglog"
