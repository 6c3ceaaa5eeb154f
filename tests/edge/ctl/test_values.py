"""ringpopctl keyspace get, put and delete, at a node on loopback."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from typing import TYPE_CHECKING

import pytest

from ringpop_py import tag_of
from ringpop_py.client.sync.watch import Changes
from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl import values
from ringpop_py.edge.ctl.ringpopctl import main
from ringpop_py.edge.ctl.values import _expiry_said
from ringpop_py.state.watch import recent
from tests.edge.ctl.served import ctl, nodes

if TYPE_CHECKING:
    from ringpop_py.state.watch.course import KeyChange

CART = {"of": "adä", "lines": [1, None, 2.5]}


async def test_a_value_is_set_and_shown_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    async with nodes("a") as (node,):
        await node.open_keyspace("k", partitions=4)

        was_set = await ctl(node, capsys, "keyspace", "put", "k", "ada", json.dumps(CART))
        shown = await ctl(node, capsys, "keyspace", "get", "k", "ada")
        as_json = await ctl(node, capsys, "keyspace", "get", "k", "ada", "--format", "json")
        unasked = await ctl(node, capsys, "keyspace", "delete", "k", "ada")
        still = await ctl(node, capsys, "keyspace", "get", "k", "ada")
        gone = await ctl(node, capsys, "keyspace", "delete", "k", "ada", "--yes")
        absent = await ctl(node, capsys, "keyspace", "get", "k", "ada")
        absent_json = await ctl(node, capsys, "keyspace", "get", "k", "ada", "--format", "json")

    assert was_set == (0, "key 'ada' of keyspace 'k' was set\n", "")
    assert shown == (0, '{"of": "adä", "lines": [1, null, 2.5]}\n', "")
    assert json.loads(as_json.out) == {
        "name": "k",
        "key": "ada",
        "value": CART,
        "tag": tag_of(CART),
    }
    assert (unasked.code, "--yes" in unasked.err, still.code) == (ExitCode.USAGE, True, 0)
    assert gone.code == 0
    assert absent == (ExitCode.FAILED, "", "ringpopctl: keyspace 'k' has no key 'ada'\n")
    assert json.loads(absent_json.err)["code"] == "key-absent"


async def test_a_value_changes_only_if_it_is_still_the_one_that_was_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with nodes("a") as (node,):
        keyspace = await node.open_keyspace("k", partitions=4)
        put = ("keyspace", "put", "k", "n")

        first = await ctl(node, capsys, *put, "1", "--if-absent")
        again = await ctl(node, capsys, *put, "2", "--if-absent")
        other = await ctl(node, capsys, *put, "3", "--if-tag", tag_of(7))
        same = await ctl(node, capsys, *put, "-4", "--if-tag", tag_of(1))
        kept = await ctl(node, capsys, "keyspace", "delete", "k", "n", "--yes", "--if-tag", "x")

        assert [done.code for done in (first, again, other, same, kept)] == [0, 1, 1, 0, 1]
        assert await keyspace.get("n") == -4


async def test_what_json_cannot_show_is_an_error_and_what_controls_a_terminal_is_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with nodes("a") as (node,):
        keyspace = await node.open_keyspace("k", partitions=4)
        await keyspace.put("bytes", b"\x00")
        await keyspace.put("evil", "\x9b2J\x1b")

        of_bytes = await ctl(node, capsys, "keyspace", "get", "k", "bytes")
        evil = await ctl(node, capsys, "keyspace", "get", "k", "evil")

    assert (of_bytes.code, "cannot be shown as JSON" in of_bytes.err) == (1, True)
    assert evil.out == '"\\u009b2J\\u001b"\n'


async def test_standard_input_is_a_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('"long"\n'))
    async with nodes("a") as (node,):
        keyspace = await node.open_keyspace("k", partitions=4)

        done = await ctl(node, capsys, "keyspace", "put", "k", "n", "-")

        assert (done.code, await keyspace.get("n")) == (0, "long")


@pytest.mark.parametrize(
    ("given", "quoted"),
    [("milk", "'\"milk\"'"), ("NaN", "'\"NaN\"'"), ("", "'\"\"'"), ("it's", "'\"it'\"'\"'s\"'")],
)
def test_a_value_that_is_not_json_is_told_how_a_text_is_quoted(
    capsys: pytest.CaptureFixture[str], given: str, quoted: str
) -> None:
    assert main(["keyspace", "put", "k", "n", given]) == ExitCode.USAGE

    assert capsys.readouterr().err == (
        f"ringpopctl: VALUE is not JSON; if it is to be a text, quote it twice: {quoted}\n"
    )


async def test_a_key_is_given_an_instant_which_get_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    put, get = ("keyspace", "put", "k", "n"), ("keyspace", "get", "k", "n")
    async with nodes("a") as (node,):
        keyspace = await node.open_keyspace("k", partitions=4)

        dated = await ctl(node, capsys, *put, "1", "--expires-at", "2100-01-01T01:00:00+01:00")
        shown = await ctl(node, capsys, *get)
        as_json = await ctl(node, capsys, *get, "--format", "json")
        lived = await ctl(node, capsys, *put, "2", "--expires-in", "1800")
        left = await ctl(node, capsys, *get)
        later = await ctl(node, capsys, *get, "--format", "json")
        await keyspace.persist("n")
        never = await ctl(node, capsys, *get, "--format", "json")
        past = await ctl(node, capsys, *put, "3", "--expires-at", "1")

    assert (dated.code, lived.code) == (0, 0)
    assert shown.out.startswith("1\nexpires at 2100-01-01 00:00:00 UTC, in ")
    assert json.loads(as_json.out)["expires_at"] == 4_102_444_800
    assert left.out.startswith("2\nexpires at ")
    assert 1_000 < json.loads(later.out)["expires_at"] - time.time() < 1_900
    assert "expires_at" not in json.loads(never.out)
    assert (past.code, "in the past" in past.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--expires-in", "soon"], "a number of seconds"),
        (["--expires-in", "0"], "expires_in is seconds above 0"),
        (["--expires-at", "2100-01-01"], "a time with its zone"),
        (["--expires-at", "5", "--expires-in", "5"], "not allowed with"),
    ],
)
async def test_a_wrong_time_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], options: list[str], reason: str
) -> None:
    async with nodes("a") as (node,):
        keyspace = await node.open_keyspace("k", partitions=4)

        done = await ctl(node, capsys, "keyspace", "put", "k", "n", "1", *options)

        assert (done.code, reason in done.err) == (ExitCode.USAGE, True)
        assert await keyspace.get("n") is None


def test_an_instant_that_is_past_or_after_the_last_date_can_be_shown() -> None:
    assert _expiry_said(1).endswith("UTC, which is past: its owner deletes it")
    assert _expiry_said(1e15).startswith("expires in ")


async def test_changes_are_printed_and_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until Ctrl-C, which comes here when nothing has changed for a while."""
    monkeypatch.setattr(values, "WAIT_S", 0.1)
    monkeypatch.setattr(recent, "KEPT_MAX", 3)
    some = Changes.some

    def interrupted(self: Changes, wait_s: float) -> list[KeyChange]:
        found = some(self, wait_s)
        if not found:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Changes, "some", interrupted)
    async with nodes("a") as (node,):
        keyspace = await node.open_keyspace("k", partitions=1)
        await keyspace.put("u/1", ["te\x1b"])
        await keyspace.put("u/2", b"x")
        watching = ("keyspace", "watch", "k")
        first = await ctl(node, capsys, *watching, "--existing", "--prefix", "u/")
        position = first.err.split()[-1]
        await keyspace.delete("u/1")
        await keyspace.put("v", 2)
        after = (*watching, "--after", position)
        second = await ctl(node, capsys, *after, "--format", "json")
        of_key = await ctl(node, capsys, *after, "--key", "u/1")
        for number in range(5):
            await keyspace.put("v", number)
        gone = await ctl(node, capsys, *after)
        wrong = await ctl(node, capsys, *watching, "--after", "yesterday")

    assert first.code == of_key.code == ExitCode.INTERRUPTED
    assert re.sub("JSON: [^)]*", "JSON: ANY", first.out).splitlines() == [
        'put "u/1" ["te\\u001b"]',
        "put \"u/2\" (the value of key 'u/2' cannot be shown as JSON: ANY)",
    ]
    lines = [json.loads(line) for line in second.out.splitlines()]
    assert [line.pop("position") for line in lines][-1] in second.err
    assert lines == [
        {"key": "u/1", "deleted": True, "value": None},
        {"key": "v", "deleted": False, "value": 2},
    ]
    assert of_key.out == 'delete "u/1"\n'
    assert (gone.code, "--existing" in gone.err, "no longer has" in gone.err) == (1, True, True)
    assert (wrong.code, "is no position" in wrong.err) == (ExitCode.USAGE, True)
