"""The report: a trace in, one page out that needs nothing besides itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_sim.cli import main
from ringpop_sim.errors import TraceError
from ringpop_sim.reports.report import CODES, page_of, ranges, read_story

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_sim.checks import Check

SPLIT = """
name = "halves"
nodes = 4
until_s = 60
[[do]]
kind = "cut"
at_s = 10
for_s = 20
left = [0, 1]
right = [2, 3]
[[do]]
kind = "crash"
at_s = 45
nodes = [3]
"""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    plan, path = tmp_path / "plan.toml", tmp_path / "trace.jsonl"
    plan.write_text(SPLIT)
    main(["run", str(plan), "--trace", str(path), "--trace-messages"])
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def story_of(path: Path) -> dict[str, Any]:
    return read_story(path).as_json()


def embedded(page: str) -> str:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return found[1]


def views(story: dict[str, Any], observer: str, subject: str) -> list[tuple[float, str]]:
    (lane,) = (i for i, lane in enumerate(story["lanes"]) if lane["name"] == observer)
    found = next(
        view
        for of_lane, of_subject, view in story["views"]
        if (of_lane, story["subjects"][of_subject]) == (lane, subject)
    )
    return [(at, CODES[code]) for at, code in zip(found[::2], found[1::2], strict=True)]


def test_the_command_writes_the_page(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    capsys.readouterr()

    assert main(["report", str(trace), "--html", str(page)]) == 0

    assert "open it in a browser" in capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")


def test_the_page_holds_the_figures_the_faults_and_the_command_that_replays_it(
    trace: Path,
) -> None:
    story = json.loads(embedded(page_of(read_story(trace))))

    assert (story["scenario"], story["seed"], story["nodes"]) == ("halves", 1, 4)
    assert story["result"]["ok"] is True
    assert story["replay"].startswith("bin/ringpop-sim run - --seed 1 <<'END'")
    assert [(f["text"], f["from"], f["to"]) for f in story["faults"]] == [
        ("cut n0, n1 ↔ n2, n3", 10.0, 30.0),
        ("crash n3", 45.0, None),
    ]
    (lives,) = (lane["lives"] for lane in story["lanes"] if lane["name"] == "n3")
    assert lives == [[0.0, 45.0]]


def test_a_strip_says_what_each_observer_held_each_member_for(trace: Path) -> None:
    found = views(story_of(trace), "n0", "n2")

    assert [status for _, status in found[:3]] == ["alive", "suspect", "faulty"]
    assert found[-1][1] == "alive"
    assert 10 < found[1][0] < found[2][0] < 30 < found[-1][0]


def test_during_the_split_each_half_owns_all_keys_of_its_own_ring(trace: Path) -> None:
    ring = story_of(trace)["ring"]

    def at(instant: float) -> int:
        return max(i for i, t in enumerate(ring["times"]) if t <= instant)

    assert ring["disputed"][at(9)] == 0
    assert ring["disputed"][at(29)] > 0.9
    assert ring["disputed"][at(44)] == 0
    assert sum(ring["shares"][at(44)]) == pytest.approx(1, abs=0.001)
    assert sum(share > 0 for share in ring["shares"][-1]) == 3


def test_the_spread_of_a_change_counts_those_who_could_know(trace: Path) -> None:
    changes = story_of(trace)["changes"]

    crashed = [c for c in changes if c["at"] > 45 and CODES[c["code"]] == "faulty"]
    assert [(c["n"], len(c["knew"])) for c in crashed] == [(3, 3)]
    assert all(len(c["knew"]) <= c["n"] for c in changes)
    assert all(c["knew"][0] == 0 for c in changes)


def test_messages_say_which_of_them_were_lost(trace: Path) -> None:
    story = story_of(trace)

    during = [row for row in story["messages"]["rows"] if 10.5 < row[0] < 29]
    sides = [{story["subjects"][row[1]], story["subjects"][row[2]]} for row in during]
    across = [len(side & {"n0", "n1"}) == 1 for side in sides]
    assert any(across)
    assert [not row[5] for row in during] == across


def test_a_broken_invariant_comes_with_its_instant_and_detail(
    tmp_path: Path, nobody_is_faulty: type[Check]
) -> None:
    plan, path = tmp_path / "plan.toml", tmp_path / "trace.jsonl"
    plan.write_text(SPLIT)
    main(["run", str(plan), "--trace", str(path)])

    story = story_of(path)

    assert story["broken"][0]["invariant"] == nobody_is_faulty.invariants[0]
    assert "for faulty" in story["broken"][0]["detail"]
    assert any(event[2] == "invariant-broken" for event in story["events"])


def test_a_restarted_process_knows_nobody_at_first(tmp_path: Path) -> None:
    plan, path = tmp_path / "plan.toml", tmp_path / "trace.jsonl"
    plan.write_text(SPLIT + "for_s = 5\n")
    main(["run", str(plan), "--trace", str(path)])

    assert (45 + 5, "unknown") in views(story_of(path), "n3", "n0")


def test_names_cannot_end_the_element_that_they_stand_in(trace: Path) -> None:
    evil = "</script><script>alert(1)</script><!--"
    lines = lines_of(trace)
    for line in lines:
        for key in ("observer", "member"):
            if line.get(key) == "n1":
                line[key] = evil
    write_lines(trace, lines)

    page = page_of(read_story(trace))

    assert "alert(1)</script>" not in page
    assert "<" not in embedded(page)
    assert evil in json.loads(embedded(page))["subjects"]


def test_the_page_refers_to_no_other_host(trace: Path) -> None:
    page = page_of(read_story(trace))

    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert not re.findall(r"@import|<link(?![^>]*data:,)|\bsrc=|fetch\(|XMLHttpRequest", page)
    assert "default-src 'none'" in page


def test_a_trace_that_was_cut_short_is_told_as_far_as_it_goes(trace: Path) -> None:
    lines = lines_of(trace)
    write_lines(trace, lines[: len(lines) // 2])

    story = story_of(trace)

    assert story["result"] is None
    assert story["until"] == lines[len(lines) // 2 - 1]["time"]


def test_a_report_leaves_out_what_is_too_much_and_says_so(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("EVENTS_MAX", "MESSAGES_MAX", "CHANGES_MAX"):
        monkeypatch.setattr(f"ringpop_sim.reports.report.{limit}", 5)

    story = story_of(trace)

    assert len(story["events"]) == len(story["messages"]["rows"]) == len(story["changes"]) == 5
    assert [text.split(" of ")[-1].split()[1].rstrip(",") for text in story["leftOut"]] == [
        "events",
        "changes",
        "messages",
    ]


@pytest.mark.parametrize(
    ("place", "line", "said"),
    [
        (1, "{", "line 2: this is not a JSON object"),
        (1, "[1]", "line 2: this is not a JSON object"),
        (1, '{"time": NaN, "event": "x"}', "line 2: this is not a JSON object"),
        (1, '{"event": "checksum"}', "line 2: 'time' is missing"),
        (1, '{"time": 1e999, "event": "x"}', "line 2: its time is not an instant"),
        (1, '{"time": 1, "event": "message"}', "line 2: 'what' is missing"),
        (0, '{"time": 1, "event": "message"}', "line 1: a trace must begin with its plan"),
        (0, '{"time": 0, "event": "plan", "format": 99}', "line 1: its format is 99, not 1"),
        (
            0,
            '{"time": 0, "event": "plan", "format": 1, "seed": 1, "plan": "nodes = 0"}',
            "line 1: its plan: a plan has 1 to 20000 nodes, not 0",
        ),
        (
            1,
            '{"time": 1, "event": "ready", "observer": "x", "observer_address": "y"}',
            "line 2: x at y has not been started",
        ),
    ],
)
def test_a_bad_line_is_named_and_gives_exit_code_2(
    trace: Path, place: int, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = trace.read_text().splitlines()
    lines[place] = line
    trace.write_text("\n".join(lines))
    capsys.readouterr()

    assert main(["report", str(trace), "--html", str(trace) + ".html"]) == 2

    assert said in capsys.readouterr().err


def test_no_trace_at_all_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")

    with pytest.raises(TraceError, match="line 1: it is empty"):
        read_story(tmp_path / "empty")
    with pytest.raises(TraceError, match="No such file"):
        read_story(tmp_path / "nowhere")


def test_a_page_that_cannot_be_written_gives_exit_code_2(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(trace), "--html", "/nowhere/page.html"]) == 2

    assert "/nowhere/page.html: No such file" in capsys.readouterr().err


def test_messages_are_not_traced_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "steady", "--trace-messages"]) == 2

    assert "--trace-messages needs --trace" in capsys.readouterr().err


def test_an_observer_of_a_run_does_not_change_its_course(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "split", "--nodes", "4", "--format", "json"]

    digests = []
    for more in ([], ["--trace", str(tmp_path / "t"), "--trace-messages"]):
        main([*argv, *more])
        digests.append(json.loads(capsys.readouterr().out)["digest"])

    assert digests[0] == digests[1]


def page_as(trace: Path, tmp_path: Path, *arguments: str) -> str:
    """The console of a node, as the command writes it."""
    page = tmp_path / "console.html"
    assert main(["report", str(trace), "--html", str(page), "--as", *arguments]) == 0
    return page.read_text()


def test_the_console_of_a_node_is_drawn_as_it_would_have_looked(
    trace: Path, tmp_path: Path
) -> None:
    before = page_as(trace, tmp_path, "n0", "--at", "9")
    assert "<title>Healthy · halves</title>" in before
    assert "All 4 members are up and agree." in before
    assert "4 members are in the ring." in before
    assert before.count('class="by-member"') == 1

    split = page_as(trace, tmp_path, "n0", "--at", "29")
    assert "<title>(1) Critical · halves</title>" in split
    assert "2 different views of the cluster: " in split
    assert "n0, n1" in split
    assert "n2, n3 are out of reach" in split
    assert split.count('class="span faulty"') == 2
    assert "2 members are in the ring." in split
    assert "n2: ✕" in split or split.count('class="middle gone"') == 4

    healed = page_as(trace, tmp_path, "n0", "--at", "44")
    assert "<title>Healthy · halves</title>" in healed
    assert "n2 faulty -&gt; alive" in healed

    end = page_as(trace, tmp_path, "n0")
    assert "n3 is out of reach" in end
    for page in (before, split, healed, end):
        assert "<script" not in page
        assert "<button" not in page
        assert "http" not in page.replace("http%3A//www.w3.org/2000/svg", "")


def test_a_report_says_why_a_node_cannot_be_shown(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = ("--html", str(tmp_path / "x.html"))
    assert main(["report", str(trace), *html, "--as", "n9"]) == 2
    assert "no node 'n9' ran" in capsys.readouterr().err
    assert main(["report", str(trace), *html, "--at", "3"]) == 2
    assert "--at goes with --as" in capsys.readouterr().err


def test_nodes_are_listed_as_ranges() -> None:
    assert ranges([7, 0, 1, 2, 3, 5, 6]) == "n0-n3, n5-n7"
    assert ranges([1, 2, 4]) == "n1, n2, n4"


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_a_browser_draws_the_page_without_a_complaint(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    main(["report", str(trace), "--html", str(page)])
    assert CHROMIUM is not None

    browser = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=3000",
            "--enable-logging=stderr",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert 'data-drawn="yes"' in browser.stdout
    assert "<title>halves, seed 1: ringpop-sim report</title>" in browser.stdout
    assert "CONSOLE" not in browser.stderr
