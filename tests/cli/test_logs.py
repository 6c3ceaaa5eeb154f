"""Logs that cannot be written."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from ringpop_py.cli.logs import Logs

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _defaults_after() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("_defaults_after")
@pytest.mark.parametrize("form", ["console", "json"])
def test_a_full_disk_costs_the_line_and_no_more(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb", buffering=0) as raw:  # noqa: PTH123 - unbuffered
        monkeypatch.setattr("sys.stderr", _unbuffered(raw))

        Logs(form, "info")

        structlog.get_logger("ringpop").info("something happened", count=1)


@pytest.mark.usefixtures("_defaults_after")
@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_is_logged_with_where_it_was_raised(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    Logs(form, "info")

    try:
        raise_it()
    except ValueError:
        structlog.get_logger("ringpop").exception("that failed")

    text = capsys.readouterr().err
    assert "that failed" in text
    assert "raise_it" in text


def raise_it() -> None:
    raise ValueError


def _unbuffered(raw: io.FileIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, write_through=True)
