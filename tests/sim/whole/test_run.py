"""Runs of whole daemons: they hold, take one course, and are judged by what they do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ringpop_py.client.aio.keyspaces import AsyncKeyspaceClient
from ringpop_sim.cli import main
from ringpop_sim.commands import BAD_PLAN
from ringpop_sim.errors import PlanError
from ringpop_sim.plans.plan import (
    Crash,
    Drain,
    FailStore,
    KeyspacePlan,
    Pause,
    Plan,
    Rumour,
    Start,
    Stop,
)
from ringpop_sim.plans.planfile import plan_text
from ringpop_sim.runs.run import run, run_of
from ringpop_sim.units import ms, s

if TYPE_CHECKING:
    from ringpop_sim.plans.plan import Operation


def a_plan(*operations: Operation, **keyspace: object) -> Plan:
    """A plan of three whole daemons with a keyspace of four partitions."""
    return Plan(
        nodes=3,
        until_us=60 * s,
        calm_us=2 * s,
        whole=True,
        keyspace=KeyspacePlan(partitions=4, from_us=2 * s, **keyspace),  # type: ignore[arg-type]
        operations=operations,
    )


@pytest.mark.parametrize("mode", ["durable", "memory"])
@pytest.mark.parametrize(
    "operation",
    [
        Start(at_us=3 * s, nodes=(2,)),
        Drain(at_us=3 * s, for_us=4 * s, nodes=(0,)),
        Stop(at_us=3 * s, for_us=8 * s, nodes=(1,)),
    ],
    ids=lambda operation: operation.kind,
)
def test_members_come_and_go_in_order_and_nothing_is_lost(operation: Operation, mode: str) -> None:
    result = run_of(a_plan(operation, mode=mode), 1).finish()

    assert result.ok, result.broken
    assert result.converged_s is not None
    assert result.traffic["operations"] > 50


@pytest.mark.parametrize(
    "operation",
    [
        Crash(at_us=3 * s, nodes=(1,)),
        Crash(at_us=3 * s, for_us=3 * s, nodes=(1,), silent=True),
        Crash(at_us=3 * s, for_us=3 * s, nodes=(1,), memory="kept"),
        Pause(at_us=3 * s, for_us=8 * s, nodes=(0, 1)),
        FailStore(at_us=3 * s, for_us=5 * s, how="unknown"),
        FailStore(at_us=3 * s, for_us=5 * s, how="full"),
        FailStore(at_us=3 * s, for_us=9 * s, nodes=(1,), how="read-only"),
    ],
    ids=str,
)
def test_what_goes_wrong_loses_no_acknowledged_write(operation: Operation) -> None:
    result = run_of(a_plan(operation), 1).finish()

    assert result.ok, result.broken
    assert result.traffic["operations"] > 50


def test_a_run_frees_what_it_holds_and_real_time_goes_on() -> None:
    import time

    before = time.time()
    first = run(a_plan(), 7)
    between = time.time() - before
    second = run(a_plan(), 7)

    assert first.digests == second.digests
    assert 0 < between < 60
    assert first.virtual_s > 5


def test_a_result_has_real_time_and_what_was_sent_in_streams() -> None:
    result = run_of(a_plan(), 7).finish()

    assert 0 < result.wall_s < 60
    assert result.messages_per_node_s > 1
    assert result.bytes_per_node_s > 100


def test_what_whole_daemons_cannot_do_is_refused() -> None:
    with pytest.raises(PlanError, match="rumour"):
        run_of(a_plan(Rumour(at_us=s, nodes=(0,), about=1)), 1)


def test_without_greenlet_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_name: str) -> None:
        raise ModuleNotFoundError("No module named 'greenlet'", name="greenlet")

    monkeypatch.setattr(sys.modules["ringpop_sim.runs.run"], "import_module", missing)

    with pytest.raises(PlanError, match=r"need greenlet: pip install 'ringpop_py\[sim\]'"):
        run_of(a_plan(), 1)
    for command in ("swarm", "determinism"):  # before their processes begin, each with it
        assert main([command, "--whole", "--seeds", "1"]) == BAD_PLAN
        assert "need greenlet" in capsys.readouterr().err


def test_an_error_that_ends_a_client_counts_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(*_: object, **__: object) -> None:
        raise AssertionError("a bug of the client")

    monkeypatch.setattr(AsyncKeyspaceClient, "get", breaks)

    result = run_of(a_plan(), 1).finish()

    assert "X" in {broken.invariant for broken in result.broken}
    assert any("a bug of the client" in broken.detail for broken in result.broken)


def test_no_product_code_of_a_dead_or_paused_process_runs() -> None:
    """Traced call by call, in a process of its own: a profile slows everything down."""
    code = (
        "import sys\n"
        "from tests.sim.whole.test_run import a_plan\n"
        "from ringpop_sim.plans.plan import Crash, Pause\n"
        "from ringpop_sim.runs.run import run_of\n"
        "from ringpop_sim.units import s\n"
        "pause = Pause(at_us=3 * s, for_us=2 * s, nodes=(1,))\n"
        "crash = Crash(at_us=7 * s, for_us=2 * s, nodes=(0,))\n"
        "run = run_of(a_plan(pause, crash), 1)\n"
        "counts = {'dead': 0, 'paused': 0, 'live': 0}\n"
        "def profile(frame, event, _):\n"
        "    process = run.world.stage.current\n"
        "    if event == 'call' and process and '/ringpop_py/' in frame.f_code.co_filename:\n"
        "        life = 'paused' if process.paused else 'live' if process.alive else 'dead'\n"
        "        counts[life] += 1\n"
        "sys.setprofile(profile)\n"
        "run.advance(10 * s)\n"
        "sys.setprofile(None)\n"
        "run.close()\n"
        "print(counts)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stderr
    counts = eval(done.stdout)  # noqa: S307 - a dict of numbers, printed above
    assert counts["live"] > 10_000
    assert counts["dead"] == counts["paused"] == 0


def test_a_stop_that_is_late_is_a_kill() -> None:
    frozen = FailStore(at_us=2900 * ms, for_us=40 * s, how="slow")
    result = run_of(a_plan(frozen, Stop(at_us=3 * s, for_us=30 * s, nodes=(1,))), 1).finish()

    assert result.ok, result.broken


def test_a_run_among_tests_takes_the_course_of_the_command() -> None:
    import hypothesis  # noqa: F401 - it changes how trio orders tasks

    plan = a_plan(Crash(at_us=3 * s, for_us=2 * s, nodes=(1,)))
    command = [sys.executable, "-m", "ringpop_sim.cli", "run", "-", "--seed", "7"]
    done = subprocess.run(
        [*command, "--format", "json"],
        input=plan_text(plan),
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )

    assert run_of(plan, 7).finish().digest == json.loads(done.stdout)["digest"]
