"""`edge.cli.process`: an application that cannot be started ends the process, and says why."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest

from ringpop_py import Address, Config, open_ringpop
from ringpop_py.base.logs import NAME
from ringpop_py.edge.cli import ringpopd as command
from ringpop_py.edge.cli.logs import Logs
from ringpop_py.edge.cli.process import _reload
from tests.logged import events_in
from tests.net.security.sites import DAY, a_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = "an_application"
FLAG = f"--app {MODULE}:create"


@dataclass(frozen=True)
class Run:
    """How ringpopd ended, and the lines on standard error: those of the log, and of itself."""

    exit_code: int
    log: list[str]
    said: list[str]


class Ringpopd:
    """Runs ringpopd with an application whose module has a given text."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capfd = capfd

    def run(self, text: str) -> Run:
        (self._folder / f"{MODULE}.py").write_text(text)
        self._capfd.readouterr()
        # Without that of pytest, which lets through what an exception raises if asked for its text.
        logger = logging.getLogger(NAME)
        logger.handlers = [each for each in logger.handlers if type(each).__module__ == logs_module]
        exit_code = command.main(["--listen=127.0.0.1:0", f"--app={MODULE}:create"])
        captured = self._capfd.readouterr()
        assert captured.out == ""
        lines = captured.err.splitlines()
        said = [line for line in lines if line.startswith("ringpopd: ")]
        assert lines[len(lines) - len(said) :] == said  # they are the last ones
        return Run(exit_code, lines[: len(lines) - len(said)], said)


logs_module = Logs.__module__


@cache
def the_logs() -> tuple[Logs, list[logging.Handler]]:
    """The log of all tests here, with its handlers: each has a thread, which does not end."""
    return Logs("console", "info"), logging.getLogger(NAME).handlers


@pytest.fixture
def ringpopd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Ringpopd]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    logger = logging.getLogger(NAME)
    before = logger.handlers, logger.level, logger.propagate
    logs, handlers = the_logs()
    logger.handlers, logger.propagate = handlers, False
    logger.setLevel(logging.INFO)
    monkeypatch.setattr(command, "Logs", lambda _form, _level: logs)
    handled = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield Ringpopd(tmp_path, capfd)
    for number, handler in handled.items():
        signal.signal(number, handler)
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
    sys.modules.pop(MODULE, None)


PRELUDE = """
import asyncio, os, signal, sys
import trio
from ringpop_py.base.errors import ApplicationError, ConfigError

class Mute(Exception):
    def __str__(self):
        raise RuntimeError

class Exits(Exception):
    def __str__(self):
        sys.exit(4)

class MuteConfigError(ConfigError):
    def __str__(self):
        raise RuntimeError

class Ends(BaseException):
    pass

class Wrong:
    def __await__(self):
        return 5

class Foreign:
    def __await__(self):
        yield 5

def recurse():
    recurse()
"""

FAULTS = {
    "raise ValueError('two\\nlines')": "ValueError: two lines",
    "raise Mute": "Mute: (its text cannot be made)",
    "raise Exits": "Exits: (its text cannot be made)",
    "raise ValueError('\\ud800')": "ValueError: ?",
    "recurse()": "RecursionError: maximum recursion depth exceeded",
    "sys.exit()": "SystemExit",
    "sys.exit(0)": "SystemExit: 0",
    "sys.exit('no database')": "SystemExit: no database",
    "raise SyntaxError": "SyntaxError: None",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "raise Ends('the end')": "Ends: the end",
    "raise BaseExceptionGroup('many', [Ends('of one'), ValueError()])": "Ends: of one",
    "raise ApplicationError(5, None)": "ApplicationError: ",
}


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize("statement", FAULTS)
def test_whatever_a_factory_raises_is_one_line_after_the_log_and_exit_code_1(
    prefix: str, statement: str, ringpopd: Ringpopd
) -> None:
    done = ringpopd.run(f"{PRELUDE}\n{prefix}def create(ringpop):\n    {statement}\n")

    assert done.exit_code == 1
    (line,) = done.said
    assert line.startswith(f"ringpopd: {FLAG}: {FAULTS[statement]}")
    assert any("the application failed at its start" in logged for logged in done.log)
    assert any(f'{MODULE}.py", line ' in logged for logged in done.log)


@pytest.mark.parametrize("prefix", ["", "async "])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ConfigError('no such thing')", "no such thing"),
        ("ConfigError('\\ud800')", "?"),
        ("MuteConfigError()", "(its text cannot be made)"),
    ],
)
def test_an_error_of_settings_that_a_factory_raises_is_one_line_and_exit_code_2(
    prefix: str, error: str, said: str, ringpopd: Ringpopd
) -> None:
    done = ringpopd.run(f"{PRELUDE}\n{prefix}def create(ringpop):\n    raise {error}\n")

    assert done.exit_code == 2
    assert done.said == [f"ringpopd: {FLAG}: {said}"]
    assert not any("Traceback" in logged for logged in done.log)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("asyncio.sleep(1)", "RuntimeError: no running event loop"),
        ("Wrong()", "TypeError: __await__() returned non-iterator of type 'int'"),
        ("Foreign()", "TypeError: trio.run received unrecognized yield message 5"),
    ],
)
def test_a_factory_that_returns_what_trio_cannot_await_has_failed(
    returned: str, said: str, ringpopd: Ringpopd
) -> None:
    done = ringpopd.run(f"{PRELUDE}\ndef create(ringpop):\n    return {returned}\n")

    assert done.exit_code == 1
    (line,) = done.said
    assert line.startswith(f"ringpopd: {FLAG}: {said}")


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_factory_with_a_yield_is_refused_because_nothing_of_it_runs(
    prefix: str, ringpopd: Ringpopd
) -> None:
    text = f"""
{prefix}def create_in_vain(ringpop):
    print('here')
    yield

async def end_later():  # a node that is not ended by the factory
    await trio.sleep(5)
    os.kill(os.getpid(), signal.SIGTERM)

def create(ringpop):
    trio.lowlevel.spawn_system_task(end_later)
    return create_in_vain(ringpop)
"""

    done = ringpopd.run(f"{PRELUDE}\n{text}")

    assert done.exit_code == 2
    assert done.said == [f"ringpopd: {FLAG}: it has a `yield`, so none of its code has run"]


@pytest.mark.parametrize("returned", ["5", "ringpop", "[ringpop]", "object", "lambda: 1"])
def test_a_node_ignores_anything_else_that_a_factory_returns(
    returned: str, ringpopd: Ringpopd
) -> None:
    end = "os.kill(os.getpid(), signal.SIGTERM)"

    done = ringpopd.run(f"{PRELUDE}\ndef create(ringpop):\n    {end}\n    return {returned}\n")

    assert (done.exit_code, done.said) == (0, [])
    assert done.log[-1].endswith("ended")


@pytest.mark.parametrize(
    ("error", "line"),
    [("ValueError('too late')", "ValueError: too late"), ("SystemExit(5)", "SystemExit: 5")],
)
def test_a_task_of_a_factory_that_fails_while_a_signal_ends_it_is_the_factorys_fault(
    error: str, line: str, ringpopd: Ringpopd
) -> None:
    text = f"""
async def fail_at_end():
    try:
        await trio.sleep_forever()
    finally:
        raise {error}

async def create(ringpop):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_at_end)
        nursery.start_soon(trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGTERM)
"""

    done = ringpopd.run(f"{PRELUDE}\nimport trio.testing\n{text}")

    assert done.exit_code == 1
    assert done.said == [f"ringpopd: {FLAG}: {line}"]


@pytest.mark.parametrize(
    "statement", [each for each in FAULTS if each != "raise KeyboardInterrupt"]
)
@pytest.mark.parametrize("where", ["", "def __getattr__(name):\n    "])
def test_a_module_that_cannot_give_its_factory_is_one_line_and_exit_code_2(
    where: str, statement: str, ringpopd: Ringpopd
) -> None:
    done = ringpopd.run(f"{PRELUDE}\n{where}{statement}\n")

    assert done.exit_code == 2
    assert done.log == []
    (line,) = done.said
    prefix = f"ringpopd: {FLAG}: cannot import {MODULE}: {FAULTS[statement]}"
    assert line.startswith(prefix)
    assert f"{MODULE}.py:" in line


def test_ctrl_c_while_the_module_is_imported_ends_the_process_without_a_word(
    ringpopd: Ringpopd,
) -> None:
    done = ringpopd.run(f"{PRELUDE}\nos.kill(os.getpid(), signal.SIGINT)\n")

    assert (done.exit_code, done.log, done.said) == (0, [], [])


@pytest.mark.parametrize("text", ["", "create = None\n", "create = 'create'\n", "create = []\n"])
def test_an_object_that_cannot_be_called_is_not_a_factory(text: str, ringpopd: Ringpopd) -> None:
    done = ringpopd.run(text)

    assert done.exit_code == 2
    assert done.said == [f"ringpopd: {FLAG}: {MODULE} has no function 'create'"]


def test_a_base_exception_of_the_member_itself_is_one_line_after_the_log(
    ringpopd: Ringpopd,
) -> None:
    text = (
        "def create(ringpop):\n    ringpop.driver.submit(lambda now: exec('raise SystemExit(3)'))\n"
    )

    done = ringpopd.run(text)

    assert done.exit_code == 1
    assert done.said == ["ringpopd: the node failed: SystemExit: 3"]


async def test_at_sighup_a_certificate_for_http_is_read_again_or_the_old_one_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", NAME)
    first, second = a_site(), a_site(ends=2 * DAY)
    certificate, private_key = first.write(tmp_path)
    config = Config(http=Address("127.0.0.1", 0), http_cert=certificate, http_key=private_key)
    async with open_ringpop(config) as ringpop:
        (tmp_path / "site.key").write_bytes(second.private_key)
        _reload(ringpop)
        [kept] = events_in(caplog, "kept the old certificate")
        assert "do not fit together" in str(kept.fields["reason"])
        second.write(tmp_path)
        _reload(ringpop)
    [read] = events_in(caplog, "read the certificate again")
    assert str(read.fields["certificate"]).startswith("['until 2")


def test_garbage_is_collected_as_often_as_the_flag_says(ringpopd: Ringpopd) -> None:
    before = gc.get_threshold()
    try:
        ringpopd.run(
            "import gc\ndef create(_): raise ValueError(gc.isenabled(), gc.get_threshold())"
        )
        assert gc.isenabled()
        assert gc.get_threshold()[0] == 10_000

        command.main(["--gc-threshold", "1234", "--listen", "127.0.0.1:0", "--app", "no_module:x"])
        assert gc.isenabled()
        assert gc.get_threshold()[0] == 1_234
    finally:
        gc.set_threshold(*before)
