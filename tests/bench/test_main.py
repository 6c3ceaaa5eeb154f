"""`python -m tests.bench` as a person uses it: what is wrong is said at once, and it ends clean."""

from __future__ import annotations

import signal
from importlib import import_module
from pathlib import Path

import pytest

from tests.bench.__main__ import ending_in_order, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("spark", "--parts", "owners,nope"), "--parts: no nope; there are: owners, "),
        (("spark", "--flights-3m", "/nofile"), "--flights-3m: /nofile: No such file or directory"),
        (("spark", "--rows", "0"), "--rows: a whole number, 1 or more, not '0'"),
        (("spark", "--keys", "-1"), "--keys: a whole number, 1 or more, not '-1'"),
        (("spark", "--turns", "0"), "--turns: a whole number, 1 or more, not '0'"),
        (("state", "--parts", "nope"), "--parts: no nope; there are: single, "),
        (("state", "--folder", "/nofolder"), "--folder: /nofolder: no such folder"),
        (("gossip", "--only", "nope"), "--only: no nope; there are: "),
        (("gossip", "--runs", "x"), "--runs: a whole number, 1 or more, not 'x'"),
        (("gossip", "--nodes", "3,x"), "--nodes: a whole number, 1 or more, not 'x'"),
        (("simulator", "--limit", "-1"), "--limit: must be a number of seconds above 0, not '-1'"),
        (("protocol", "--seeds", "0"), "--seeds: a whole number, 1 or more, not '0'"),
    ],
)
def test_arguments_that_cannot_be_measured_are_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bench: error: argument ")
    assert said in last


@pytest.mark.parametrize(
    ("benchmark", "package"), [("state", "keyspaces"), ("spark", "dataframes")]
)
def test_each_part_of_a_benchmark_has_its_function(benchmark: str, package: str) -> None:
    if benchmark == "spark":
        pytest.importorskip("pyspark")
    for path in import_module(f"tests.bench.{benchmark}").PARTS.values():
        module, _, function = path.partition(".")

        assert callable(getattr(import_module(f"tests.bench.{package}.{module}"), function))


def test_an_end_is_one_whatever_error_it_led_to() -> None:
    def fail() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            raise TypeError  # as py4j does

    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as caught, ending_in_order():
            fail()
    finally:
        signal.signal(signal.SIGTERM, before)

    assert caught.value.code == 128 + signal.SIGTERM
