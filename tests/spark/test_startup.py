"""What a Spark worker loads to run a task of ours: little, because each worker waits for it."""

from __future__ import annotations

import pickle
import pkgutil
import subprocess
import sys

import pytest

import ringpop_py.spark
from ringpop_py.client import RingSnapshot
from ringpop_py.ring import HashRing
from ringpop_py.spark.plan import Plan
from ringpop_py.spark.tasks import Ask, Deliver

SLOW = ("pyspark", "pandas", "trio", "structlog", "httpx", "asyncio", "ringpop_py.daemon")
"""Modules that take tens of milliseconds each. A worker has pyspark; it need not search it."""
PLAN = Plan(
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


@pytest.mark.parametrize("task", [Deliver(PLAN), Ask(PLAN)])
def test_what_a_task_unpickles_loads_nothing_slow(task: object) -> None:
    pickled = pickle.dumps(task)

    assert slow_modules_after(f"import pickle; pickle.loads({pickled!r})") == []


def test_the_package_itself_loads_nothing_slow() -> None:
    assert slow_modules_after("import ringpop_py.spark") == []


@pytest.mark.parametrize("name", ringpop_py.spark.__all__)
def test_each_name_is_there_when_it_is_asked_for(name: str) -> None:
    pytest.importorskip("pyspark")

    assert getattr(ringpop_py.spark, name).__name__ == name
    assert name in dir(ringpop_py.spark)


def test_no_name_is_that_of_a_module_which_would_hide_it() -> None:
    modules = {module.name for module in pkgutil.iter_modules(ringpop_py.spark.__path__)}

    assert modules.isdisjoint(ringpop_py.spark.__all__)


def test_a_name_that_is_not_there_is_missing_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rout'"):
        ringpop_py.spark.rout  # noqa: B018 - asking is the point
