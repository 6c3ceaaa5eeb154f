"""One Spark session for all tests that need one; without Java or pyspark they are skipped."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")
    from ringpop_py.demo.session import open_spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with open_spark("ringpop_py tests", driver_memory="1g") as session:
        yield session
