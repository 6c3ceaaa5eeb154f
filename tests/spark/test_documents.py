"""What docs/spark.md says of the data source, and docs/pipelines.md of files, holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_demo.cluster import Cluster
from ringpop_py.client.sync.client import Client
from ringpop_py.client.sync.keyspaces import KeyspaceClient
from ringpop_py.spark import RingpopDataSource
from ringpop_py.spark.options import OPTIONS
from ringpop_py.spark.pipeline.settings import KNOWN, load_pipeline
from tests.spark.snippets import snippets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.timeout(360)]

DOCS = Path(__file__).parents[2] / "docs"
PIPELINES = (DOCS / "pipelines.md").read_text("utf-8")
FILES = dict(re.findall(r"^```toml (\w+\.toml)\n(.*?)^```$", PIPELINES, re.MULTILINE | re.DOTALL))
PURPOSES = {
    ("read", "write", "stream write"): "all",
    ("write", "stream write"): "writing",
    ("write",): "batches",
    ("read",): "reading",
}
FLIGHTS = "tailnum,arr_delay,distance\nN14228,11,1400\nN24211,,1416\nN14228,-5,1089\n,3,200\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("nodes")
    with Cluster(folder, 2, store=folder / "store") as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Path:
    """Where the documents' files are, with the addresses of `cluster` in them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "january.csv").write_text(FLIGHTS)
    for name, text in FILES.items():
        adapted = text.replace("127.0.0.1:3000", cluster.addresses[0])
        # The JVM is where it was when the session was made.
        adapted = re.sub(r'(path = \[?")', rf"\1{tmp_path}/", adapted)
        (tmp_path / name).write_text(adapted)
    return tmp_path


def held_in(cluster: Cluster, keyspace: str) -> dict[str, object]:
    with Client(cluster.addresses[0]) as client, KeyspaceClient(client, keyspace) as held:
        return dict(held.scan())


def test_a_program_writes_and_reads(
    spark: SparkSession, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = snippets("The data source")

    exec(code.replace("127.0.0.1:3000", cluster.addresses[0]), {})  # noqa: S102 - our own document

    assert held_in(cluster, "miles") == {"N14228": 2_489, "N24211": 1_416}
    assert re.search(r"\| *N14228\| *2489\|", capsys.readouterr().out)
    assert spark.catalog.currentDatabase() == "default"  # the session is still there


def test_rows_are_combined_first_in_a_batch_and_in_the_batches_of_a_stream(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    batch, streamed = snippets("Rows combined first")
    rows = [("N1", 5, 100), ("N1", None, 300), ("N2", None, 200)]
    df = spark.createDataFrame(rows, "tailnum string, arr_delay int, distance int")
    df.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(df.schema).parquet(str(tmp_path / "rows"))
    spark.dataSource.register(RingpopDataSource)
    names: dict[str, Any] = {"df": df, "stream": stream}
    with Client(cluster.addresses[0]) as client:
        client.admin("/admin/keyspaces/create", {"name": "flights", "partitions": 4})

    def run(code: str) -> None:
        code = code.replace("127.0.0.1:3000", cluster.addresses[0])
        exec(code.replace('"checkpoint"', repr(str(tmp_path / "at"))), names)  # noqa: S102 - ours

    run(batch)
    others = {"N1": {"arr_delay": 5, "distance": 300}, "N2": {"distance": 200}}
    assert held_in(cluster, "flights") == {
        "N1": {"flights": 2, **others["N1"]},
        "N2": {"flights": 1, **others["N2"]},
    }

    run(streamed)
    names["query"].processAllAvailable()
    names["query"].stop()
    names["write"](df, 0)  # as if it came again

    assert held_in(cluster, "flights") == {
        "N1": {"flights": 4, **others["N1"]},
        "N2": {"flights": 2, **others["N2"]},
    }


def test_the_table_of_options_is_what_the_data_source_knows() -> None:
    text = (DOCS / "spark.md").read_text("utf-8")

    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text, re.MULTILINE)

    known = [(option.name, PURPOSES[option.purposes], option.text) for option in OPTIONS]
    assert [row for row in rows if row[0] in {name for name, _, _ in known}] == known


def test_the_reference_names_all_that_a_file_may_say() -> None:
    for names in KNOWN.values():
        for name in names:
            assert re.search(rf"\b{name}\b", PIPELINES), name


def test_the_files_of_the_reference_are_in_order(folder: Path) -> None:
    pipelines = [load_pipeline(name, (), {"DAY": "2013-01-01"}) for name in FILES]

    assert [pipeline.keyspace.name for pipeline in pipelines] == ["aircraft", "miles", "aircraft"]
    assert sorted(path.name for path in folder.glob("*.toml")) == sorted(FILES)


def test_the_batch_of_the_reference_runs_in_the_session_that_is_there(
    spark: SparkSession, cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PIPELINES, re.MULTILINE | re.DOTALL)
    (folder / "batch.toml").rename(folder / "aircraft.toml")
    monkeypatch.setenv("DAY", "2013-01-01")
    names: dict[str, object] = {"spark": spark}

    exec(code, names)  # noqa: S102 - our own document

    assert held_in(cluster, "aircraft") == {
        "N14228": {"flights": 2, "distance": 2_489, "minutes": 6, "longest": 1400 * 1.609344},
        "N24211": {"flights": 1, "distance": 1_416, "minutes": 0, "longest": 1416 * 1.609344},
    }
