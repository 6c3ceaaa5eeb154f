"""`ctl.changes`: which member is meant, and what is asked before it changes."""

from __future__ import annotations

import io
import socket
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ApplicationError
from ringpop_py.client.sync.client import Client
from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl import changes, ringpopctl
from ringpop_py.edge.ctl.changes import status_after

if TYPE_CHECKING:
    from collections.abc import Callable

STATUSES = {"web-1": "alive", "web-2": "alive", "web-3": "faulty", "web-4": "leave"}
ADDRESSES = {f"10.0.0.{number}:3000": f"web-{number}" for number in range(1, 5)}
ROWS = [
    {"name": name, "address": address, "status": STATUSES[name]}
    for address, name in ADDRESSES.items()
]


class Cluster:
    """Four members; it records each change that one of them is asked for."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str, Any]] = []
        self.owners = {"web-1": 0.25, "web-2": 0.75}

    def node(self, peer: str | None, **_: object) -> Any:  # noqa: ANN401 - in place of a Client
        return nullcontext(FakeMember(self, ADDRESSES[peer or "10.0.0.1:3000"]))


class FakeMember:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.peer = cluster, name

    def admin(self, endpoint: str, body: Any = None, **_: object) -> dict[str, Any]:  # noqa: ANN401 - as Client has it
        match endpoint.removeprefix("/admin/"):
            case "members":
                return {"source": self.peer, "members": ROWS}
            case "member/drain/status":
                return {"source": self.peer, "phase": "serving", "under_way": {"partitions": 5}}
            case "ring":
                owners = self.cluster.owners.items()
                return {"owners": [{"name": name, "share": share} for name, share in owners]}
            case "reapable":
                return {"source": self.peer, "cluster": "shop", "members": ROWS[2:]}
            case "member/force-leave" if STATUSES[body["name"]] == "alive":
                raise ApplicationError("_Failure", "it is alive")
            case "member/force-leave" if body.get("dry_run"):
                return {"member": next(row for row in ROWS if row["name"] == body["name"])}
            case _:
                self.cluster.done.append((self.peer, endpoint, body))
                return {"status": "ok", "under_way": {}, "reaped": 2}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(ringpopctl, "connect", made.node)
    monkeypatch.setattr(changes, "connect", made.node)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.delenv("RINGPOP_PEER", raising=False)
    return made


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sit at a terminal, and answer."""
    return lambda text: monkeypatch.setattr(sys, "stdin", Terminal(f"{text}\n"))


@pytest.mark.parametrize("verb", ["drain", "undrain", "leave", "join"])
def test_a_member_is_told_at_its_own_address_and_without_a_name_the_node_that_is_asked(
    verb: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ringpopctl.main([verb]) == 0
    assert ringpopctl.main([verb, "web-2"]) == 0

    assert [(at, path) for at, path, _ in cluster.done] == [
        ("web-1", f"/admin/member/{verb}"),
        ("web-2", f"/admin/member/{verb}"),
    ]
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("web-1 ")
    assert second.startswith("web-2 ")


def test_what_brings_a_member_back_is_told_with_its_name(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ringpopctl.main(["drain", "web-2"])
    ringpopctl.main(["leave", "web-2"])
    ringpopctl.main(["leave"])

    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("`ringpopctl undrain web-2` brings it back")
    assert out[1].endswith("`ringpopctl join web-2` brings it back")
    assert out[2].endswith("`ringpopctl join` brings it back")
    assert len(cluster.done) == 3


@pytest.mark.parametrize("verb", ["drain", "undrain", "leave", "join", "force-leave"])
def test_an_unknown_name_is_answered_with_one_that_is_near(
    verb: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ringpopctl.main([verb, "web2"]) == ExitCode.USAGE

    said = capsys.readouterr().err
    assert said == "ringpopctl: no member is called 'web2'; did you mean web-2?\n"
    assert cluster.done == []


@pytest.mark.parametrize("verb", ["drain", "undrain", "leave", "join"])
def test_a_faulty_member_is_not_asked(
    verb: str, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ringpopctl.main([verb, "web-3"]) == ExitCode.USAGE

    said = capsys.readouterr().err
    assert "web-3 is faulty, says web-1, so it was not asked" in said
    assert "--peer 10.0.0.3:3000" in said
    assert "`ringpopctl force-leave web-3`" in said
    assert cluster.done == []


@pytest.mark.parametrize(
    ("arguments", "asked", "name"),
    [
        (
            ("drain", "web-2"),
            "Drain web-2: other members take over its 75.0% of the ring, and 5 partitions.",
            "web-2",
        ),
        (
            ("drain", "--end", "--timeout=0"),
            "Drain and end web-1: other members take over its 25.0% of the ring, and 5 partitions.",
            "web-1",
        ),
        (
            ("leave", "web-2"),
            "Take out of the ring web-2: other members take over its 75.0% of the ring",
            "web-2",
        ),
        (
            ("reap",),
            "Reap the members of shop: web-3 (faulty), web-4 (leave) become tombstones.",
            "shop",
        ),
        (
            ("force-leave", "web-3"),
            "Force out web-3: it is faulty, and becomes a tombstone everywhere",
            "web-3",
        ),
    ],
)
def test_at_a_terminal_the_name_is_typed_before_anything_is_done(
    arguments: tuple[str, ...],
    asked: str,
    name: str,
    cluster: Cluster,
    typed: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("no")
    assert ringpopctl.main(arguments) == 2
    assert cluster.done == []
    said = capsys.readouterr()
    assert said.err.startswith(asked)
    assert said.err.endswith("that is not its name; nothing was done\n")

    typed(name)
    ringpopctl.main(arguments)
    assert len(cluster.done) == 1
    assert capsys.readouterr().err.startswith(asked)

    typed("")
    ringpopctl.main([*arguments, "--yes"])
    assert len(cluster.done) == 2
    assert "Type its name" not in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["undrain", "join"])
def test_what_undoes_a_change_is_not_asked_about(
    verb: str, cluster: Cluster, typed: Callable[[str], None]
) -> None:
    typed("")

    assert ringpopctl.main([verb, "web-2"]) == 0
    assert len(cluster.done) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("drain", "web-2"), "drain web-2: other members take over its 75.0% of the ring"),
        (("leave",), "take out of the ring web-1: other members take over its 25.0%"),
        (("reap",), "would become tombstones: web-3 (faulty), web-4 (leave)"),
        (("force-leave", "web-4"), "force out web-4: it is leave, and becomes a tombstone"),
    ],
)
def test_a_dry_run_says_what_would_happen_and_asks_nothing(
    arguments: tuple[str, ...],
    said: str,
    cluster: Cluster,
    typed: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed("")

    assert ringpopctl.main([*arguments, "--dry-run"]) == 0

    assert capsys.readouterr().out.startswith(f"dry run, nothing was done: {said}")
    assert cluster.done == []


def test_the_only_owner_is_told_that_nobody_takes_over(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.owners = {"web-1": 1.0}

    ringpopctl.main(["drain", "--dry-run"])

    assert "web-1: it is the only owner, so that afterwards" in capsys.readouterr().out


@pytest.mark.parametrize("stdin", [None, io.StringIO()], ids=["closed", "no terminal"])
def test_without_a_terminal_only_a_member_that_is_forced_out_needs_yes(
    stdin: io.StringIO | None,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)

    assert [ringpopctl.main([verb]) for verb in ("drain", "leave", "reap")] == [0, 0, 0]
    assert len(cluster.done) == 3
    assert ringpopctl.main(["force-leave", "web-3"]) == ExitCode.USAGE
    assert "pass --yes" in capsys.readouterr().err
    assert len(cluster.done) == 3
    assert ringpopctl.main(["force-leave", "web-3", "--yes"]) == 0
    assert cluster.done[3:] == [("web-1", "/admin/member/force-leave", {"name": "web-3"})]


def test_a_member_that_the_node_does_not_force_out_is_not_asked_about(
    cluster: Cluster, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed("web-2")

    assert ringpopctl.main(["force-leave", "web-2"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "ringpopctl: it is alive\n"
    assert cluster.done == []


def test_a_node_that_says_nothing_is_not_taken_for_one_that_has_ended() -> None:
    before = {"phase": "closing", "under_way": {"requests": 1}}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(*silent.getsockname())
        with Client(address, timeout_s=0.1) as client:
            assert status_after(before, client) == before

    with Client(address, timeout_s=5) as client:
        assert status_after(before, client) is None
