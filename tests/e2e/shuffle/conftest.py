"""Three nodes that hold rows of shuffles, for the tests of one module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.shuffle.cluster import ShuffleCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShuffleCluster]:
    with ShuffleCluster(tmp_path_factory.mktemp("cluster"), 3) as cluster:
        cluster.wait_ready(3)
        yield cluster
        print(cluster.logs())  # shown if a test fails
