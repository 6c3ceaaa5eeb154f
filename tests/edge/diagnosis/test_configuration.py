"""ringpopctl config check: files of ringpopd, right and wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl.ringpopctl import main

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
listen = "127.0.0.1:3000"
hosts = ["127.0.0.1:3001"]
store = "s3://ann:hunter2@bucket/x"
cluster_key = "/etc/ringpop/key"
ring_points = 100
[labels]
zone = "a"
[gossip]
period_s = 0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(GOOD)
    return path


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RINGPOP_HOSTS", "RINGPOP_CLUSTER_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_what_differs_from_the_defaults_is_shown_without_passwords(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", str(file)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"OK: {file}",
        "SETTING          VALUE",
        "listen           127.0.0.1:3000",
        "hosts            127.0.0.1:3001",
        "labels           zone=a",
        "cluster_key      /etc/ringpop/key",
        "store            s3://(hidden)@bucket/x",
        "gossip.period_s  0.5",
    ]


def test_flags_of_ringpopd_override_the_file_as_they_do_there(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--ring-points", "7", "--label", "rack=r1", "--preset", "wan", "--format", "json"]

    assert main(["config", "check", str(file), *flags]) == 0

    found = json.loads(capsys.readouterr().out)["settings"]
    assert found["labels"] == {"zone": "a", "rack": "r1"}
    assert (found["ring_points"], found["gossip.period_s"]) == (7, 0.5)
    assert len([name for name in found if name.startswith("gossip.")]) > 1  # those of the preset


def test_each_mistake_is_named_with_its_place(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('listen = "x"\nrings = 1\n[gossip]\nperiod_s = -1\n')

    assert main(["config", "check", str(file)]) == ExitCode.USAGE

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count(f"config file {file}: ") == 3
    assert "gossip.period_s is a number of seconds" in said.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("/not/there",), "config file /not/there: No such file"),
        (("FILE", "--hosts", "/not/there"), "hosts file /not/there: No such file"),
        (("FILE", "--ring-pionts", "7"), "unrecognized arguments: --ring-pionts 7; did you mean"),
        (("FILE", "--ring-points", "0"), "ring_points is a whole number"),
    ],
)
def test_what_ringpopd_would_refuse_is_refused(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    given = [str(file) if each == "FILE" else each for each in arguments]

    assert main(["config", "check", *given]) == ExitCode.USAGE

    assert text in capsys.readouterr().err
