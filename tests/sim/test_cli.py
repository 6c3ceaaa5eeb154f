"""The command line: one answer on standard output, errors beside it, and an exit code."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_sim.cli import main
from ringpop_sim.plans.planfile import plan_text
from ringpop_sim.runs.cases import read_case
from ringpop_sim.runs.random_plans import random_plan
from ringpop_sim.scenarios import SCENARIOS

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_sim.checks import Check

CRASH = 'name = "gone"\nnodes = 3\nuntil_s = 30\n[[do]]\nkind = "crash"\nat_s = 5\nnodes = [1]\n'


@pytest.fixture
def crash(tmp_path: Path) -> str:
    path = tmp_path / "crash.toml"
    path.write_text(CRASH)
    return str(path)


def json_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def test_run_says_in_json_all_that_came_of_it(
    crash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", crash, "--seed", "3", "--format", "json"]) == 0

    value = json_of(capsys)
    assert (value["scenario"], value["seed"], value["nodes"]) == ("gone", 3, 3)
    assert value["ok"] is True
    assert value["broken"] == []
    assert value["virtual_s"] == 30
    assert value["events"] > 100
    assert value["detected_s"] > 0
    assert value["converged_s"] is not None
    assert value["false_faulty"] == 0
    assert value["messages_per_node_s"] > 0
    assert value["bytes_per_node_s"] > 0
    assert len(value["digest"]) == 16
    assert value["events_per_s"] > 0


def test_a_node_can_be_looked_at_in_mid_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "power-loss", "--dump", "n2", "--at", "11.2"]) == 0

    head, *sections = capsys.readouterr().out.split("\n\n")
    shown = {title: lines for title, *lines in (section.splitlines() for section in sections)}
    assert head.startswith("<Node n2 at 10.0.0.2:3000, ready; members: 9 alive; 3 calls,")
    assert head.endswith("running at 11.200000 s")
    assert shown["probes:"] == ["  13  n8  ping: timeout  n4: open  n1: open  n7: open"]
    assert "then=ProbeHelp(probe=13, helper=n4)" in shown["calls:"][0]
    due = [float(line.split()[0]) for line in shown["timers:"]]
    assert due == sorted(due)
    assert len(due) == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--dump", "n9", "--at", "3"],
            "no node 'n9' has been started at 3 s; there is n0, n1, n2",
        ),
        (["--dump", "n1", "--at", "31"], "--at 31 is after the end of gone, which runs for 30 s"),
        (["--dump", "n1"], "--dump NODE and --at T need each other"),
        (["--at", "1"], "--dump NODE and --at T need each other"),
    ],
)
def test_a_node_or_an_instant_that_does_not_exist_is_named(
    crash: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", crash, *options]) == 2

    assert said in capsys.readouterr().err


def test_a_run_takes_the_same_course_again(crash: str, capsys: pytest.CaptureFixture[str]) -> None:
    digests = []
    for _ in range(2):
        main(["run", crash, "--format", "json"])
        digests.append(json_of(capsys)["digest"])

    assert digests[0] == digests[1]


def test_run_for_people_names_the_digest_and_has_no_colours(
    crash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", crash]) == 0

    said = capsys.readouterr()
    assert "gone, seed 1, 3 nodes" in said.out
    assert "every invariant held" in said.out
    assert "\x1b" not in said.out
    assert said.err == ""


def test_a_broken_invariant_gives_exit_code_1_and_a_command(
    crash: str, capsys: pytest.CaptureFixture[str], nobody_is_faulty: type[Check]
) -> None:
    assert main(["run", crash, "--format", "json"]) == 1

    said = capsys.readouterr()
    broken = json.loads(said.out)["broken"][0]
    assert broken["invariant"] == nobody_is_faulty.invariants[0]
    assert 5 < broken["time"] < 30
    assert "bin/ringpop-sim run - --seed 1 <<'END'" in said.err
    assert 'kind = "crash"' in said.err


def test_the_trace_holds_the_plan_the_facts_and_the_result(crash: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"

    assert main(["run", crash, "--trace", str(path)]) == 0

    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert records[0]["event"] == "plan"
    assert records[-1]["event"] == "result"
    assert {
        (r["observer"], r["member"])
        for r in records
        if r["event"] == "member-changed" and r["after"] == "faulty"
    } == {("n0", "n1"), ("n2", "n1")}
    assert [r["time"] for r in records[1:-1]] == sorted(r["time"] for r in records[1:-1])


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_makes_a_plan_of_any_size(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", name, "--nodes", "24", "--show-plan"]) == 0

    assert "nodes = 24" in capsys.readouterr().out


def test_the_scenarios_are_listed_with_what_they_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--list"]) == 0

    said = capsys.readouterr().out
    assert all(name in said for name in [*SCENARIOS, "random"])
    assert "One node dies and stays away" in said


def test_a_plan_comes_from_standard_input_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(CRASH))

    assert main(["run", "-", "--codec", "--format", "json"]) == 0

    assert json_of(capsys)["scenario"] == "gone"


def test_random_draws_the_plan_from_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "random", "--seed", "4711", "--show-plan"]) == 0

    assert capsys.readouterr().out == plan_text(random_plan(4711))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run"], "which plan? There is steady"),
        (["run", "nowhere"], "'nowhere' is neither a file nor a scenario; there is steady"),
        (["run", "split", "--nodes", "1"], "this scenario needs 2 nodes or more, not 1"),
        (["run", "split", "--nodes", "30000"], "a plan has 1 to 20000 nodes"),
        (["run", "steady", "--nodes", "2", "--trace", "/nowhere/x"], "/nowhere/x: No such file"),
        (["replay", "nowhere.toml"], "nowhere.toml: No such file"),
        (["shrink", "nowhere.toml"], "neither a file nor a scenario"),
    ],
)
def test_a_bad_plan_gives_exit_code_2_and_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "split", "--seed", "-1"],
        ["run", "split", "--seed", "x"],
        ["run", "split", "--nodes", "0"],
        ["swarm", "--for", "0"],
        ["fly"],
        [],
    ],
)
def test_wrong_usage_gives_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)

    assert caught.value.code == 2
    assert "usage: ringpop-sim" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "swarm", "replay", "shrink", "determinism"])
def test_each_command_has_a_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])

    assert caught.value.code == 0
    assert f"  ringpop-sim {command} " in capsys.readouterr().out.partition("examples:")[2]


def test_a_recorded_case_is_replayed_and_checked(
    crash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--record", "--seed", "9", crash]) == 0
    capsys.readouterr()

    assert main(["replay", "--check", "--format", "json", crash]) == 0

    (case,) = json_of(capsys)["cases"]
    assert case["seed"] == 9
    assert case["same_digest"]
    assert case["same_broken"]


def test_a_case_that_takes_another_course_is_noticed(
    crash: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["replay", "--record", crash])
    path = tmp_path / "changed.toml"
    case = read_case(crash)
    path.write_text((tmp_path / "crash.toml").read_text().replace(case.digest, "0" * 16))
    capsys.readouterr()

    assert main(["replay", str(path)]) == 0
    assert "another course" in capsys.readouterr().out
    assert main(["replay", "--check", str(path)]) == 3


def test_shrink_prints_the_small_plan_as_a_command_and_saves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nobody_is_faulty: type[Check]
) -> None:
    path = tmp_path / "small.toml"

    assert main(["shrink", "random", "--seed", "5", "--for", "5", "--save", str(path)]) == 1

    said = capsys.readouterr()
    assert said.out.startswith("bin/ringpop-sim run - --seed ")
    assert "T1: from " in said.err
    case = read_case(path)
    assert case.broken == nobody_is_faulty.invariants
    assert len(case.plan.operations) < len(random_plan(5).operations)


def test_there_is_nothing_to_shrink_where_nothing_breaks(
    crash: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shrink", crash, "--seed", "1"]) == 0

    assert "nothing breaks" in capsys.readouterr().out
