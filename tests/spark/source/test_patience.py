"""A daemon to speak to, and patience with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import (
    BadOperation,
    ConnectFailed,
    KeyspaceError,
    PartitionUnavailable,
    StoreFull,
)
from ringpop_py.spark.options import Target
from ringpop_py.spark.source.patience import Patience, reached

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_demo.cluster import Cluster

TARGET = Target("k", ("127.0.0.1:1", "127.0.0.1:2"), schedule_s=(0.0,), max_retries=2)


def failing(*errors: KeyspaceError) -> Callable[[], str]:
    """What raises these, one after the other, and then is done."""
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_an_error_that_passes_is_tried_again() -> None:
    patience = Patience(TARGET)

    done = patience(failing(PartitionUnavailable(), PartitionUnavailable()))

    assert (done, patience.retries_count) == ("done", 2)


def test_patience_ends() -> None:
    patience = Patience(TARGET)

    with pytest.raises(PartitionUnavailable, match="the third"):
        patience(failing(*(PartitionUnavailable(text) for text in ("", "", "the third"))))


@pytest.mark.parametrize("error", [BadOperation("no"), StoreFull("full")])
def test_an_error_that_does_not_pass_is_raised_immediately(error: KeyspaceError) -> None:
    patience = Patience(TARGET)

    with pytest.raises(type(error)):
        patience(failing(error))

    assert patience.retries_count == 0


def test_that_nobody_answers_is_told_peer_by_peer() -> None:
    with pytest.raises(ConnectFailed, match=r"(?s)127.0.0.1:1: .*127.0.0.1:2: "), reached(TARGET):
        pass


def test_a_patient_caller_looks_again_for_a_node_that_answers() -> None:
    patience = Patience(TARGET)

    with pytest.raises(ConnectFailed), reached(TARGET, patience):
        pass

    assert patience.retries_count == 2


@pytest.mark.e2e
def test_the_first_peer_that_answers_is_spoken_to(cluster: Cluster) -> None:
    peers = ("127.0.0.1:1", cluster.addresses[1], cluster.addresses[0])

    with reached(Target("k", peers, timeout_s=7.0)) as client:
        assert (str(client.peer), client.timeout_s) == (cluster.addresses[1], 7.0)
