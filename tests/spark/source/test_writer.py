"""What the driver does with tasks, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py.base.errors import JobAborted, PartitionUnavailable, RingpopError
from ringpop_py.client.sync.client import Client
from ringpop_py.spark.options import WriteOptions, write_options
from ringpop_py.spark.source.writer import (
    BatchWriter,
    Staged,
    StreamWriter,
    settle,
)
from tests.spark.writes import fresh_name

if TYPE_CHECKING:
    from ringpop_demo.cluster import Cluster


def options_for(*peers: str, keyspace: str = "k") -> WriteOptions:
    options = {"keyspace": keyspace, "peers": ",".join(peers), "maxRetries": "0", "timeout": "5"}
    return write_options(options)


def test_a_batch_that_was_staged_under_two_names_is_not_committed() -> None:
    staged = [Staged("q/1", 0, "a"), Staged("q/1~1", 1, "b")]

    with pytest.raises(JobAborted, match="batch 1 was staged under two names: q/1, q/1~1"):
        StreamWriter(options_for("127.0.0.1:1")).commit(staged, 1)


def test_a_job_that_cannot_be_aborted_hides_no_error_of_sparks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    BatchWriter(options_for("127.0.0.1:1"), "a", named=False).abort([None])

    assert "job 'a' could not be aborted: no daemon answers" in caplog.text


def test_a_job_that_may_come_again_under_its_name_is_not_aborted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    BatchWriter(options_for("127.0.0.1:1"), "a", named=True).abort([None])
    StreamWriter(options_for("127.0.0.1:1")).abort([None], 1)

    assert not caplog.text, "nobody was asked"


@pytest.mark.e2e
def test_a_driver_that_does_not_see_the_end_of_a_job_is_told_how_to(
    durable_cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    name = fresh_name()
    with Client(durable_cluster.addresses[0]) as client:
        client.admin("/admin/keyspaces/create", {"name": name, "partitions": 4})
    options = options_for(*durable_cluster.addresses, keyspace=name)

    hurried = replace(options, target=replace(options.target, timeout_s=1e-6))
    whether = r"it is not known whether job 'a' was committed .*; try this"
    with pytest.raises(RingpopError, match=whether) as caught:
        settle(hurried, "a", [Staged("a", 0)], again="try this")
    assert caught.value.passes
    with pytest.raises(
        PartitionUnavailable, match=r"is committed: .* so do not .*; wait like this"
    ):
        settle(options, "a", [Staged("a", 0)], again="wait like this", apply_timeout_s=1e-9)
    settle(options, "a", [Staged("a", 0, known=True)], again="")

    BatchWriter(options, "a", named=False).abort([None])
    assert "job 'a' is committed, so its rows will be there" in caplog.text
