"""What a Spark worker loads to run a task of ours: little, because each worker waits for it."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ringpop_py.spark
from ringpop_py.client.calls import RingSnapshot
from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.spark import ring_snapshot
from ringpop_py.spark.sender import HASH, Deliver, RoutePlan

if TYPE_CHECKING:
    from ringpop_demo.cluster import Cluster

SLOW = (
    *("pyspark", "pandas", "trio", "httpx", "asyncio", "email", "crc32c"),
    "ringpop_py.edge.daemon",
)
"""Modules that take tens of milliseconds each. A worker has pyspark; it need not search it."""
NAMES = vars(ringpop_py.spark)["__all__"]
HOME = Path(ringpop_py.spark.__path__[0])
MODULES = {
    ".".join(path.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__"): path
    for path in HOME.rglob("*.py")
    if path != HOME / "__init__.py"
}
KNOW_SPARK = {
    name
    for name, path in MODULES.items()
    if re.search(r"^(from|import) pyspark", path.read_text("utf-8"), re.MULTILINE)
}
"""Those of the driver, and classes that Spark calls."""
PLAN = RoutePlan(
    job="job",
    key="key",
    endpoint="/rows",
    peers=("127.0.0.1:1",),
    snapshot=RingSnapshot(HashRing(["a"]), {}, "app"),
    through="owners",
    in_flight=1,
    max_retries=1,
    schedule_s=(0.0,),
    timeout_s=1.0,
)


def slow_modules_after(code: str) -> list[str]:
    program = f"{code}\nimport sys\nprint(*(name for name in {SLOW} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.split()


def test_unpickling_a_task_loads_nothing_slow() -> None:
    pickled = pickle.dumps(Deliver(PLAN))

    assert slow_modules_after(f"import pickle; pickle.loads({pickled!r})") == []


@pytest.mark.e2e
def test_sending_rows_loads_nothing_slow_either(cluster: Cluster) -> None:
    hashes = HashRing().hashes_of(["a", "", "b"]).view("int64")
    rows = pa.record_batch({"key": ["a", None, "b"], HASH: hashes})
    plan = replace(
        PLAN,
        endpoint="/lengths",
        peers=tuple(cluster.addresses),
        snapshot=ring_snapshot(cluster.addresses),
        answers=pa.schema([("length", pa.int64())]),
    )
    program = f"""
        import pickle
        from ringpop_py.spark.sender import Report, Sender
        from ringpop_py.base.values.declared import encode
        with Sender(pickle.loads({pickle.dumps(plan)!r}), partition=0, attempt=0) as sender:
            sender.send(0, pickle.loads({pickle.dumps(rows)!r}))
            sender.finish()
            assert sum(batch.num_rows for batch in sender.take_answers()) == 4
            encode(Report(sender.counts))
    """

    assert slow_modules_after(textwrap.dedent(program)) == []


def test_a_module_that_does_not_name_pyspark_loads_nothing_slow() -> None:
    code = "".join(
        f"import ringpop_py.spark.{name}\n" for name in sorted(MODULES.keys() - KNOW_SPARK)
    )

    assert slow_modules_after(code) == []


def test_no_module_loads_anything_slow_but_pyspark() -> None:
    pytest.importorskip("pyspark")
    spark = "import pyspark.sql.functions, pyspark.sql.datasource, pyspark.sql.pandas.types\n"
    ours = "".join(f"import ringpop_py.spark.{name}\n" for name in sorted(MODULES))

    assert slow_modules_after(spark + ours) == slow_modules_after(spark)


def test_unpickling_a_writing_task_loads_nothing_slow_but_pyspark() -> None:
    pytest.importorskip("pyspark")
    from ringpop_py.spark.options import write_options
    from ringpop_py.spark.source.writer import BatchWriter

    writer = BatchWriter(write_options({"keyspace": "k"}), "job", named=False)
    pickled = pickle.dumps(writer)

    assert slow_modules_after(f"import pickle; pickle.loads({pickled!r})") == ["pyspark"]


def test_the_package_itself_loads_nothing_slow() -> None:
    assert slow_modules_after("import ringpop_py.spark") == []


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there_when_it_is_asked_for(name: str) -> None:
    pytest.importorskip("pyspark")

    assert getattr(ringpop_py.spark, name).__name__ == name
    assert name in dir(ringpop_py.spark)


def test_no_name_is_that_of_a_module_which_would_hide_it() -> None:
    assert MODULES.keys().isdisjoint(NAMES)


def test_a_name_that_is_not_there_is_missing_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rout'"):
        ringpop_py.spark.rout  # type: ignore[attr-defined]  # noqa: B018 - asking is the point
