"""ringpop-pipeline as far as it goes without Spark: commands, overrides, exit codes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

import pytest

from ringpop_py.base.errors import ConfigError, ConnectFailed, KeyspaceConflict, RingpopError
from ringpop_py.edge.cli import pipeline
from ringpop_py.edge.cli.pipeline import main
from ringpop_py.spark.pipeline.interrupts import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The example that the command itself prints."""
    assert main(["example"]) == 0
    path = tmp_path / "aircraft.toml"
    path.write_text(capsys.readouterr().out)
    return str(path)


@pytest.fixture
def _own_handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_example_is_in_order(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", file]) == 0

    out = capsys.readouterr().out
    assert out.startswith("aircraft: in order\n")
    assert "  source    parquet flights\n" in out
    assert "  kind      batch\n" in out
    assert "  written   flights count, distance add, minutes add, longest max\n" in out


def test_overrides_count_more_than_the_file(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = ["--set", "stream.checkpoint=/c", "--set", "keyspace.name=other"]

    assert main(["validate", file, *overrides]) == 0

    out = capsys.readouterr().out
    assert "  kind      stream, available now\n" in out
    assert "  keyspace  other\n" in out


def test_mistakes_are_told_a_line_each_and_nothing_is_started(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file, "--set", "keyspace.partitons=3", "--set", "ky=x"]) == 2

    assert capsys.readouterr().err.splitlines() == [
        f"ringpop-pipeline: {file}: ky: unknown; did you mean key?",
        f"ringpop-pipeline: {file}: keyspace.partitons: unknown; did you mean keyspace.partitions?",
    ]


def test_a_plot_that_cannot_be_written_is_told_before_anything_is_started(
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # without Java, too
    monkeypatch.delenv("JAVA_HOME", raising=False)
    plot = tmp_path / "none" / "plot.html"

    assert main([file, "--plot", str(plot)]) == 2

    said = capsys.readouterr().err
    assert said == f"ringpop-pipeline: --plot {plot}: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "json", "validate", "FILE"],
        ["validate", "--format", "json", "FILE"],
        ["validate", "FILE", "--format", "json"],
        ["--set", "name=run", "validate", "FILE"],
    ],
)
def test_the_command_may_stand_anywhere_before_the_file(
    arguments: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file if word == "FILE" else word for word in arguments]) == 0

    assert ": in order\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["--bogus"], ["run", "a", "b"], ["a", "validate"], ["example", "a"]]
)
def test_a_command_that_means_nothing_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2


def test_without_java_it_says_what_to_install(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    assert main(["run", file]) == 2

    assert "openjdk-17-jre-headless" in capsys.readouterr().err


@pytest.mark.usefixtures("_own_handlers")
@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyspaceConflict("it has 8"), 1, "it has 8"),
        (ConfigError("no such column"), 2, "no such column"),
        (ConnectFailed("nobody"), 4, "nobody"),
        (RingpopError("two\nlines"), 1, "two\nringpop-pipeline: lines"),
    ],
)
def test_exit_codes_say_whose_fault_it_was(
    file: str,
    error: Exception,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(pipeline, "_check_spark", lambda: None)
    monkeypatch.setattr(pipeline, "_work", fail)

    assert main([file]) == code

    assert capsys.readouterr().err == f"ringpop-pipeline: {text}\n"


@pytest.mark.usefixtures("_own_handlers")
def test_that_spark_starts_is_said_before_it_does(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def open_session(*_: object, **_options: object) -> NoReturn:
        assert capsys.readouterr().err == "aircraft: starting Spark\n"
        raise ConnectFailed("that is all")

    monkeypatch.setattr(pipeline, "_check_spark", lambda: None)
    monkeypatch.setattr(pipeline, "open_session", open_session)

    assert main([file]) == 4


@pytest.mark.usefixtures("_own_handlers")
@pytest.mark.parametrize("error", [None, Interrupted(), ZeroDivisionError()])
def test_a_signal_ends_it_with_130_whatever_error_it_led_to(
    file: str, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_interrupted(*_: object) -> int:
        signal.raise_signal(signal.SIGTERM)
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(pipeline, "_check_spark", lambda: None)
    monkeypatch.setattr(pipeline, "_work", be_interrupted)

    assert main([file]) == 130
