"""Clients that come to exist twice lose no write and mix no replies, whatever made the copy."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.copies_of_clients import COPIES, TIMES, WAYS
from tests.e2e.local_cluster import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def test_each_copy_of_a_client_has_an_identity_and_connections_of_its_own(tmp_path: Path) -> None:
    flags = ("--store", str(tmp_path / "store"), "--app", "tests.e2e.echo_app:create")
    with LocalCluster(tmp_path, 2, *flags) as cluster:
        cluster.wait_converged()
        created = cluster[0].admin(
            "/admin/keyspaces/create", {"name": "k", "partitions": 8, "mode": "durable"}
        )
        assert created
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.copies_of_clients", cluster[0].name],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        f"{way}-{connected}": [COPIES * TIMES, 0] for way in WAYS for connected in (True, False)
    }
