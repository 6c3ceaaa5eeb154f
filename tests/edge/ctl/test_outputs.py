"""How commands end, and what they say on standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from ringpop_py.edge.cli.commands import ExitCode, complain, ends_with_its_reader, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:  # noqa: PTH123 - of a descriptor
        yield stream


@ends_with_its_reader
def failing() -> int:
    complain("it failed")
    return 4


@ends_with_its_reader
def printing() -> int:
    print("found")
    return 0


def test_a_complaint_that_is_not_read_leaves_the_exit_code_as_it_is(
    unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", unread)

    assert failing() == 4
    unread.flush()  # as at the end of Python: nothing is left that fails


def test_a_complaint_never_goes_to_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", None)

    assert failing() == 4
    assert capsys.readouterr().out == ""


def test_a_command_whose_standard_output_is_closed_ends_as_it_would_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert failing() == 4


def test_a_command_whose_reader_has_gone_ends_as_by_sigpipe(
    unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", unread)

    assert printing() == ExitCode.READER_GONE
    unread.flush()


def test_columns_are_as_wide_as_their_contents_and_numbers_stand_to_the_right() -> None:
    text = table(("NAME", "N"), [("a", 5), ("longer", 10)])

    assert text == "NAME     N\na        5\nlonger  10"


def test_a_table_without_rows_has_its_heads() -> None:
    assert table(("NAME", "N"), []) == "NAME  N"
