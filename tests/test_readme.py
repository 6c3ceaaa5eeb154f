"""README.md is run as it stands: its blocks in their order, in one shell, in an empty folder."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ringpop_demo.cluster import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HEAVY = {"bin/demo", "bin/test"}
LAUNCHERS = {
    "ringpopd": "ringpop_py.edge.cli.ringpopd",
    "ringpopctl": "ringpop_py.edge.ctl.ringpopctl",
    "ringpop-sim": "ringpop_sim.cli",
    "ringpop-pipeline": "ringpop_py.cli.pipeline",
}
FASTAPI_SAYS = (
    r'\["tea"\]\n(\["tea","milk"\]\n){2}[^[]*'
    r'\[("tea","milk",)?"bread"\]\n'  # who owns the cart depends on the ports
    r'[^[]*null\n\["tea"\]\n\["milk","tea"\]\n[^[]*\["milk","tea"\]'
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


class Block(NamedTuple):
    info: str
    text: str


class Rule(Enum):
    COMMANDS = "names of launchers: they exist"
    SHELL = "run by the shell"
    FILE = "saved under its name"
    PYTHON = "run by Python"
    SPARK = "run by Python where Spark is installed"


def blocks_of(document: Path) -> list[Block]:
    return [Block(m["info"], m["text"]) for m in FENCE.finditer(document.read_text("utf-8"))]


def blocks_under(document: Path, heading: str) -> list[Block]:
    """The blocks of one section, which must be there."""
    sections = re.split(r"^## (.*)\n", document.read_text("utf-8"), flags=re.MULTILINE)
    text = sections[sections.index(heading) + 1]
    return [Block(m["info"], m["text"]) for m in FENCE.finditer(text)]


def rule_of(block: Block) -> Rule:
    language, _, name = block.info.partition(" ")
    lines = set(block.text.splitlines())
    if language == "sh" and not name:
        return Rule.COMMANDS if lines <= HEAVY else Rule.SHELL
    if language in ("python", "toml") and re.fullmatch(r"\w+\.(py|toml)", name):
        return Rule.FILE
    if language == "python" and not name:
        return Rule.SPARK if "pyspark" in block.text else Rule.PYTHON
    message = f"no rule for a block marked {block.info!r}:\n{block.text}"
    raise AssertionError(message)


def script_of(blocks: list[Block], folder: Path, ports: list[int]) -> str:
    """A shell script that does what *blocks* say; files that it needs are put into *folder*."""
    port_of = {str(3000 + index): str(port) for index, port in enumerate(ports)}
    port_of["7077"] = port_of["3009"]
    parts = ["set -eu"]
    for number, (info, text) in enumerate(blocks):
        adapted = re.sub(r"\b(300\d|7077)\b", lambda match: port_of[match[0]], text)
        rule = rule_of(Block(info, text))
        parts.append(f"echo 'block {number}: {rule.value}'")
        match rule:
            case Rule.SHELL:
                parts.append(adapted)
            case Rule.FILE:
                (folder / info.split()[1]).write_text(adapted)
            case Rule.PYTHON | Rule.SPARK:
                (folder / f"block_{number}.py").write_text(adapted)
                parts.append(f"timeout 50 {shlex.quote(sys.executable)} block_{number}.py")
            case Rule.COMMANDS:
                pass
    return "\n".join(parts)


@pytest.fixture
def run(tmp_path: Path, unused_ports: list[int]) -> Iterator[Callable[..., str]]:
    """Runs blocks in a folder whose ``bin`` has the launchers of this very environment."""
    (tmp_path / "bin").mkdir()
    for name, module in LAUNCHERS.items():
        launcher = tmp_path / "bin" / name
        python = shlex.quote(sys.executable)
        launcher.write_text(f'#!/bin/sh\nexec {python} -m {module} "$@"\n')
        launcher.chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    own_python = tmp_path / ".venv" / "bin" / "python"
    own_python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    own_python.chmod(0o755)
    environment = {
        **os.environ,
        "RINGPOP_PEER": f"127.0.0.1:{unused_ports[0]}",
        "PATH": os.pathsep.join(
            map(str, [tmp_path / "bin", Path(sys.executable).parent, os.environ["PATH"]])
        ),
        # Sessions of seconds: the JVM is spared its second compiler.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYTHONPATH": os.pathsep.join(map(str, [ROOT, ROOT / "sim"])),
    }
    started: list[subprocess.Popen[bytes]] = []

    def run_blocks(blocks: list[Block], within_s: float = 200) -> str:
        script = script_of(blocks, tmp_path, unused_ports)
        # What the script leaves behind is its own process group, which the fixture ends.
        with (tmp_path / "output").open("wb") as sink:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started.append(process)
        status = process.wait(within_s)
        output = (tmp_path / "output").read_text("utf-8")
        assert status == 0, output
        return output

    yield run_blocks
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


@pytest.fixture
def unused_ports() -> list[int]:
    return free_ports(10)


def spark_is_missing() -> str:
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    java = shutil.which("java") or (os.environ.get("JAVA_HOME") and "JAVA_HOME")
    return "" if java else "Java is not installed"


HTTP = blocks_of(ROOT / "docs" / "http.md")
SECURITY = [each for each in blocks_of(ROOT / "docs" / "security.md") if each.info == "sh"]
STREAMS = blocks_of(ROOT / "docs" / "streams.md")
DATAFLOWS = blocks_of(ROOT / "docs" / "dataflows.md")
NIGHT = blocks_of(ROOT / "docs" / "night.md")
README = blocks_of(ROOT / "README.md")
TUTORIALS = ROOT / "docs" / "tutorials.md"
BY_HAND = blocks_under(TUTORIALS, "A cluster by hand")
WEB = ("FastAPI: carts in memory, then durable", "Flask: sessions by a cookie")
VIRTUAL = blocks_under(TUTORIALS, "A cluster in virtual time")
SCRIPTS = [
    block
    for name in ("actors.md", "embedding.md", "keyspaces.md")
    for block in blocks_of(ROOT / "docs" / name)
    if block.info != "text"
]
"""Blocks that stand alone."""


@pytest.mark.timeout(120)
def test_the_readme_does_what_it_says(run: Callable[[list[Block]], str]) -> None:
    output = run(README)

    assert [rule_of(block) for block in README] == [Rule.COMMANDS, Rule.PYTHON]
    assert "is mine" in output or "hello from b" in output
    assert "1 visit of user:1, owned by" in output


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_cluster_by_hand_does_what_the_tutorial_says(run: Callable[[list[Block]], str]) -> None:
    output = run([block for block in BY_HAND if rule_of(block) is not Rule.SPARK])

    assert "converged: 3 members" in output
    assert "hello Ada, from process" in output
    assert "converged: 2 members" in output
    # Lost: the ping was on its way when the process was killed.
    assert re.search(r"\(evidence: ping (refused|lost); helpers: ", output)


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_cluster_in_virtual_time_does_what_the_tutorial_says(
    run: Callable[[list[Block]], str],
) -> None:
    output = run(VIRTUAL)

    assert "every invariant held" in output
    assert "every invariant held in every plan" in output


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.skipif(bool(spark_is_missing()), reason=spark_is_missing() or "it is there")
def test_spark_finds_the_owners_as_the_tutorial_says(run: Callable[[list[Block]], str]) -> None:
    last = next(i for i, block in enumerate(BY_HAND) if rule_of(block) is Rule.SPARK)
    wanted = (Rule.SHELL, Rule.FILE, Rule.SPARK)

    output = run([block for block in BY_HAND[: last + 1] if rule_of(block) in wanted])

    assert re.search(r"\|127\.0\.0\.1:\d+\|", output)


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(1140)
@pytest.mark.skipif(bool(spark_is_missing()), reason=spark_is_missing() or "it is there")
def test_the_page_about_spark_has_a_job_running_in_five_minutes(run: Callable[..., str]) -> None:
    output = run(blocks_under(ROOT / "docs" / "spark.md", "In five minutes"), within_s=2200)

    assert "aircraft: in order" in output
    assert "Keyspace 'aircraft' would be made: 16 partitions" in output
    assert "The first 4 rows: 2 keys, 1 without" in output
    assert "  read      4 rows, 1 without a key\n" in output
    assert "plot: aircraft.html" in output
    (found,) = re.findall(r"^N14228: (.*)$", output, re.MULTILINE)
    assert ast.literal_eval(found) == {"flights": 2, "longest": 1400, "minutes": 6}
    assert '"rows": 1, "null_keys": 0' in output
    assert "16 partitions: 16 online" in output


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(440)
@pytest.mark.skipif(bool(spark_is_missing()), reason=spark_is_missing() or "it is there")
def test_spark_submit_takes_the_command_as_the_page_about_pipelines_says(
    run: Callable[..., str],
) -> None:
    daemons, file = blocks_under(ROOT / "docs" / "spark.md", "In five minutes")[:2]
    submit = blocks_under(ROOT / "docs" / "pipelines.md", "On a cluster")[2]

    output = run([daemons, file, submit], within_s=400)

    assert "aircraft: done in" in output
    assert "  read      4 rows, 1 without a key\n" in output


def test_the_commands_of_the_readme_are_launchers_that_a_shell_can_read() -> None:
    named = [
        line
        for block in README
        if rule_of(block) is Rule.COMMANDS
        for line in block.text.splitlines()
    ]

    assert named == ["bin/demo", "bin/test"]
    for name in named:
        assert os.access(ROOT / name, os.X_OK)
        subprocess.run(["sh", "-n", str(ROOT / name)], check=True, timeout=10)


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
@pytest.mark.timeout(120)
def test_each_script_of_the_guides_runs(number: int, run: Callable[[list[Block]], str]) -> None:
    assert rule_of(SCRIPTS[number]) is Rule.PYTHON

    run([SCRIPTS[number]])


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_a_night_shift_finds_out_what_has_happened(run: Callable[..., str]) -> None:
    output = run(NIGHT, within_s=220)

    assert "2 members are in the ring, not 3" in output
    assert re.search(r"alive -> suspect: own probe \(evidence: ping (refused|lost)", output)
    assert re.search(r"alive -> suspect: own probe \(silence: ping timeout", output)
    assert "faulty -> alive" in output
    assert "did not run for" in output
    assert output.count("ringpop OK: 3 members, nothing is wrong") >= 3
    assert output.count("{'written': 60}") >= 2
    assert re.search(r"'store-full': [1-9]", output)
    for fault in (
        "is gone",
        "stands still",
        "is starved",
        "is away",
        "is full",
        r"\w+ damaged",
    ):
        assert re.search(rf"^ringpop (CRITICAL|WARNING): .*\b{fault}", output, re.MULTILINE), fault
    assert "the store is gone" in output
    assert "are out of reach" in output
    assert "2 members are in the ring, not 4" in output
    assert "n3.html: " in output
    assert "every invariant held" in output


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_clicks_count_once_while_nodes_are_killed_and_paused(run: Callable[..., str]) -> None:
    output = run(STREAMS)

    assert "100 users, 1200 to 1200 clicks each" in output
    assert "COUNTED" in output


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_minutes_arrive_once_while_workers_come_die_and_leave(run: Callable[..., str]) -> None:
    output = run(DATAFLOWS)

    assert "3000 minutes of users, 144000 clicks" in output
    assert output.count("[171,256)") == 2
    assert output.count("[0,256)") == 1


@pytest.mark.e2e
@pytest.mark.timeout(240)
def test_the_page_about_security_does_what_it_says(run: Callable[[list[Block]], str]) -> None:
    output = run(SECURITY)

    assert output.count("no key: refused") == 1
    assert output.count("a client: refused") == 1
    assert output.count("of the old key: refused") == 1
    assert output.count("its certificate is not of a key that is trusted here") == 1
    assert "/admin/member/leave is for the role admin, not ringpop:///client/spark-job" in output
    assert output.count("is no longer trusted") == 1


@pytest.mark.e2e
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_about_http_does_what_it_says(run: Callable[[list[Block]], str]) -> None:
    output = run(HTTP)

    assert '{"items":["tea"]}' in output
    assert '"created":true' in output
    assert '"error":"ConditionFailed"' in output
    assert "}\n304\n" in output
    assert '{"values":{"visits":3}}' in output
    assert '{"rows":[{"key":"visits","value":3}],"next":null}' in output
    outcomes = '[{"value":1,"repeated":false},{"value":4,"repeated":false}]'
    assert f'{{"outcomes":{outcomes}}}' in output
    assert '"active":1,"total":1' in output
    assert '{"alive":true}' in output


@pytest.mark.e2e
@pytest.mark.timeout(240)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("heading", "module", "told"),
    [
        (WEB[0], "fastapi", FASTAPI_SAYS),
        (WEB[1], "flask", r'{"visits":0}\n{"visits":1}\n{"visits":2}\n{"visits":3}'),
    ],
    ids=["FastAPI", "Flask"],
)
def test_the_tutorials_do_what_they_say(
    run: Callable[..., str], heading: str, module: str, told: str
) -> None:
    pytest.importorskip(module)

    output = run(blocks_under(TUTORIALS, heading))

    assert re.search(told, output), output


def test_no_block_of_the_tutorials_is_left_out() -> None:
    """A section that is added needs a test of its own."""
    run_above = ("A cluster by hand", "A cluster in virtual time", *WEB)

    blocks = [block for name in run_above for block in blocks_under(TUTORIALS, name)]

    assert blocks == blocks_of(TUTORIALS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_what_is_there(document: Path) -> None:
    links = LINK.findall(document.read_text("utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_tests_that_a_document_names_are_there() -> None:
    text = (ROOT / "docs" / "systems.md").read_text("utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(test_\w+))?`", text)

    assert len(named) > 30
    for file, test in named:
        path = ROOT / file if file.startswith("examples/") else ROOT / "tests" / file
        assert f"def {test}(" in path.read_text("utf-8") if test else path.exists(), (file, test)
