"""What a signal does to the demonstration: nothing, until that asks."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from ringpop_demo import run
from ringpop_py.spark.pipeline.interrupts import Interrupted, Interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _own_handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_where_it_is_asked_for_and_nowhere_else(number: signal.Signals) -> None:
    with Interrupts() as interrupts:
        interrupts.check()

        signal.raise_signal(number)
        signal.raise_signal(number)

        with pytest.raises(Interrupted):
            interrupts.check()
        interrupts.wait()


def test_once_the_work_is_done_a_signal_changes_nothing() -> None:
    with Interrupts() as interrupts:
        pass

    for number in SIGNALS:
        signal.raise_signal(number)

    interrupts.check()


def test_a_hangup_that_was_ignored_at_the_start_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)

        interrupts.check()


@pytest.mark.parametrize("error", [None, Interrupted(), ZeroDivisionError()])
def test_an_interrupted_demonstration_says_so_whatever_error_that_led_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception | None
) -> None:
    def demonstrate(_options: argparse.Namespace, _interrupts: Interrupts) -> int:
        signal.raise_signal(signal.SIGINT)
        if error is not None:
            raise error
        return run.DIFFERENT

    monkeypatch.setattr(run, "_demonstrate", demonstrate)

    assert run.main([]) == run.INTERRUPTED

    assert capsys.readouterr().err == "\ninterrupted; all nodes have ended\n"


def test_an_error_that_no_signal_led_to_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def demonstrate(_options: argparse.Namespace, _interrupts: Interrupts) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(run, "_demonstrate", demonstrate)

    with pytest.raises(ZeroDivisionError):
        run.main([])
