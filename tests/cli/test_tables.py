"""Tables for people."""

from __future__ import annotations

from ringpop_py.cli.tables import table


def test_columns_are_as_wide_as_their_contents_and_numbers_stand_to_the_right() -> None:
    text = table(("NAME", "N"), [("a", 5), ("longer", 10)])

    assert text == "NAME     N\na        5\nlonger  10"


def test_a_table_without_rows_has_its_heads() -> None:
    assert table(("NAME", "N"), []) == "NAME  N"
