"""The bootstrap file: two forms, and what is wrong with a third."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.errors import HostsFileError
from ringpop_py.member.discovery.hosts import read_hosts_file

if TYPE_CHECKING:
    from pathlib import Path

A, B = Address("127.0.0.1", 3000), Address("127.0.0.1", 3001)


@pytest.mark.parametrize(
    "text",
    [
        '["127.0.0.1:3000", "127.0.0.1:3001"]',
        '\n  ["127.0.0.1:3000",\n"127.0.0.1:3001", "127.0.0.1:3000"]\n',
        "127.0.0.1:3000\n127.0.0.1:3001\n",
        "\ufeff# seeds\n\n127.0.0.1:3000  # first\r\n 127.0.0.1:3001\r\n127.0.0.1:3000",
    ],
)
def test_both_forms_give_each_address_once_in_order(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text, encoding="utf-8")

    assert read_hosts_file(str(file)) == (A, B)


@pytest.mark.parametrize("text", ["", "\n\n# nobody\n", "[]"])
def test_an_empty_file_is_an_empty_list(tmp_path: Path, text: str) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)

    assert read_hosts_file(str(file)) == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('["127.0.0.1:3000",]', "not JSON at line 1"),
        ('{"hosts": []}', "not an array"),
        ('["127.0.0.1:3000", 5]', "entry 1 is not text"),
        ('["127.0.0.1"]', "entry 0"),
        ("127.0.0.1:3000\nlocalhost\n", "line 2"),
        ("127.0.0.1:99999\n", "line 1"),
        ("127.0.0.1:0\n", "port 0"),
    ],
)
def test_a_line_that_is_not_an_address_is_named_with_its_place(
    tmp_path: Path, text: str, place: str
) -> None:
    file = tmp_path / "hosts"
    file.write_text(text)

    with pytest.raises(HostsFileError, match=place) as caught:
        read_hosts_file(str(file))

    assert str(file) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostsFileError, match="No such file"):
        read_hosts_file(str(tmp_path / "nothing"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(HostsFileError, match="not UTF-8"):
        read_hosts_file(str(file))
