"""Options of the data source: what is understood, and what is refused with which words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.options import (
    LOCAL_DAEMON,
    OPTIONS,
    read_options,
    write_options,
)
from ringpop_py.state.jobs.messages import check_names
from ringpop_py.state.jobs.names import SUCCESSORS_MAX

if TYPE_CHECKING:
    from pathlib import Path


def test_a_name_is_enough_to_write() -> None:
    options = write_options({"keyspace": "flights"})

    assert options.target.keyspace == "flights"
    assert options.target.peers == (LOCAL_DAEMON,)
    assert options.target.direct
    assert (options.key, options.value, options.operation) == ("key", None, "put")
    assert (options.on_null_key, options.job, options.create) == ("fail", None, False)


def test_names_are_those_of_spark_in_any_case() -> None:
    options = write_options(
        {
            "TABLE": "flights",
            "retryschedule": "0, 1.5",
            "FLUSHROWS": "1000",
            "flushbytes": "8m",
            "onNullKey": "Skip",
            "distribution": "daemon",
        }
    )

    assert options.target.keyspace == "flights"
    assert options.target.schedule_s == (0.0, 1.5)
    assert not options.target.direct
    assert (options.flush_rows, options.flush_bytes) == (1_000, 8 << 20)
    assert options.on_null_key == "skip"


def test_options_that_spark_adds_by_itself_are_ignored() -> None:
    options = write_options(
        {"keyspace": "a", "checkpointlocation": "/ck", "queryname": "q"}, streaming=True
    )

    assert options.target.keyspace == "a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add", ("add", {})),
        ("distance=add, delay = max", ("fields", {"distance": "add", "delay": "max"})),
        ("`a,b`=add,`c``d`=min,", ("fields", {"a,b": "add", "c`d": "min"})),
    ],
)
def test_an_operation_is_one_aggregation_or_one_a_column(
    text: str, expected: tuple[str, dict[str, str]]
) -> None:
    options = write_options({"keyspace": "a", "operation": text})

    assert (options.operation, options.fields) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N14228,N24211,N14228", ("N14228", "N24211")),
        ('["a,b", "c"]', ("a,b", "c")),
        (" a", (" a",)),
    ],
)
def test_keys_are_a_list_or_an_array(text: str, expected: tuple[str, ...]) -> None:
    assert read_options({"keyspace": "a", "keys": text}).keys == expected


def test_a_bootstrap_file_lists_daemons(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1:4001\n127.0.0.1:4002\n", encoding="utf-8")

    options = read_options({"keyspace": "a", "bootstrapFile": str(path)})

    assert options.target.peers == ("127.0.0.1:4001", "127.0.0.1:4002")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "name the keyspace"),
        ({"keyspace": "a", "table": "b"}, "keyspace and table mean the same"),
        ({"peers": "a:1", "bootstrapFile": "/hosts"}, "peers and bootstrapFile"),
        ({"peers": "nowhere"}, "HOST:PORT"),
        ({"bootstrapFile": "/not/there"}, "/not/there"),
        ({"path": "/some/path"}, "a keyspace has no path"),
        ({"onMoved": "retry"}, "no row is sent back as moved"),
        ({"flushRow": "3"}, r"(?s)no option 'flushrow'; there are:.*flushRows: "),
        ({"keys": "a"}, r"(?s)option keys is not for a write; there are:.*operation: "),
        ({"flushRows": "0"}, "flushRows is a whole number from 1 to 50,000,000, not '0'"),
        ({"flushBytes": "much"}, "flushBytes is a number of bytes from 1k to 1024m"),
        ({"maxInFlight": "1000"}, "maxInFlight is a whole number"),
        ({"maxRetries": "-1"}, "maxRetries is a whole number"),
        ({"retrySchedule": "soon"}, "retrySchedule is a list of seconds"),
        ({"retrySchedule": "-1"}, "0 or more"),
        ({"distribution": "pigeons"}, "'owners' or 'daemon', not 'pigeons'"),
        ({"onNullKey": "drop"}, "onNullKey is 'fail', 'skip' or 'count'"),
        ({"createKeyspace": "yes"}, "true or false"),
        ({"partitions": "4"}, "createKeyspace=true"),
        ({"operation": "a=add,a=max"}, "'a' is there twice"),
        ({"operation": "a=add b"}, "column=aggregation"),
        ({"operation": "a=add", "value": "a"}, "give only one"),
        ({"operation": "count", "value": "a"}, "count takes no column"),
        ({"key": ""}, "option key is empty"),
        (
            {"job": "j" * 97},
            "job is 1 to 96 printable characters, at most 196 when percent-encoded",
        ),
        (
            {"job": "ü" * 33},
            "job is 1 to 96 printable characters, at most 196 when percent-encoded",
        ),
        ({"timeout": "0"}, "timeout is a number of seconds above 0"),
        ({"timeout": "nan"}, "timeout is a number of seconds above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, str], message: str) -> None:
    named = {"keyspace": "a"} if given and "keyspace" not in given else {}

    with pytest.raises(ConfigError, match=message):
        write_options(named | given)


def test_a_stream_names_its_jobs_itself() -> None:
    with pytest.raises(ConfigError, match="query id and batch id"):
        write_options({"keyspace": "a", "job": "mine"}, streaming=True)


@pytest.mark.parametrize("job", ["j" * 96, "ü" * 32])
def test_the_successors_of_a_job_can_be_named_after_it(job: str) -> None:
    options = write_options({"keyspace": "a", "job": job})

    check_names(f"{options.job}~{SUCCESSORS_MAX - 1}")


def test_options_for_writing_are_refused_when_reading() -> None:
    with pytest.raises(ConfigError, match="option operation is not for a read"):
        read_options({"keyspace": "a", "operation": "add"})


def test_every_option_is_explained() -> None:
    assert all(option.text and option.purposes for option in OPTIONS)
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
