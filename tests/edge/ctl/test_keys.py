"""ringpopctl keygen and keys, as far as they go without a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.edge.ctl.ringpopctl import main
from ringpop_py.net.security.credentials import KeyCredentials
from ringpop_py.net.security.identity import Identity, Role, identity_in
from ringpop_py.net.security.keys import read_keys, read_revoked
from ringpop_py.net.security.tokens import identity_in_token

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "key")
    assert main(["keygen", path]) == 0
    return path


def listed(file: str, capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401 - plain values
    capsys.readouterr()
    assert main(["keys", "list", file, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["keys"]


def test_a_reader_gets_a_certificate_and_a_token(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = ["--name", "rita", "--role", "reader"]
    assert main(["keys", "issue", file, str(tmp_path / "rita.pem"), *reader]) == 0
    assert "ringpop:///reader/rita" in capsys.readouterr().out
    assert main(["keys", "token", file, *reader]) == 0
    shown = capsys.readouterr().out.strip()
    assert identity_in_token(shown, read_keys(file)) == Identity("", Role.READER, "rita")


def test_a_token_and_a_certificate_have_some_keyspaces(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = ["--name", "x", "--keyspaces", "orders, carts/*"]
    uri = "ringpop:///client+keyspaces/x?keyspaces=orders,carts%2F*"
    assert main(["keys", "issue", file, str(tmp_path / "x.pem"), *some]) == 0
    assert uri in capsys.readouterr().out
    assert main(["keys", "token", file, *some]) == 0
    shown = identity_in_token(capsys.readouterr().out.strip(), read_keys(file))
    assert shown == Identity("", Role.CLIENT, "x", ("orders", "carts/*"))
    longest = ",".join(f"{number:0>100}" for number in range(17))
    assert main(["keys", "token", file, "--name", "x", "--keyspaces", longest]) == 0
    assert identity_in_token(capsys.readouterr().out.strip(), read_keys(file)).has("0" * 100)


def test_a_key_follows_another(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (first,) = read_keys(file)

    assert main(["keys", "add", file]) == 0
    _, second = read_keys(file)
    assert listed(file, capsys) == [
        {"key": first.id, "used": True},
        {"key": second.id, "used": False},
    ]
    assert main(["keys", "use", file, second.id, "--unseen"]) == 0
    assert read_keys(file) == (second, first)
    assert main(["keys", "remove", file, first.id, "--unseen"]) == 0

    assert read_keys(file) == (second,)
    shown = capsys.readouterr()
    assert second.line not in shown.out + shown.err


def test_a_revocation_outlasts_changes_of_keys_until_it_is_taken_back(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (first,) = read_keys(file)

    assert main(["keys", "revoke", file, "--name", "a job"]) == 0
    shown = capsys.readouterr().out
    assert "client/a%20job" in shown
    assert "Copy the file everywhere" in shown
    revoked = read_revoked(file)
    assert main(["keys", "add", file]) == 0
    _, second = read_keys(file)
    for command, key in (("use", second), ("remove", first)):
        assert main(["keys", command, file, key.id, "--unseen"]) == 0
        assert read_revoked(file) == revoked
    capsys.readouterr()
    assert main(["keys", "list", file, "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["revoked"]
    assert [each["holder"] for each in listed] == ["client/a%20job", "admin/a%20job"]

    assert main(["keys", "revoke", file, "--name", "a job", "--role", "admin", "--undo"]) == 0
    assert [*read_revoked(file)] == [(Role.CLIENT, "a job")]
    assert read_keys(file) == (second,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["use", "FILE", "00000000", "--unseen"], "no key '00000000' is in the file: "),
        (["remove", "FILE", "FIRST", "--unseen"], "it is the only key"),
        (["list", "/not/there"], "No such file"),
        (["issue", "FILE", "FILE", "--name", "x"], "exists already"),
        (["revoke", "FILE", "--name", "n1", "--role", "member"], "a member is not revoked by"),
        (["revoke", "FILE", "--name", "x", "--undo"], "nothing of client/x or admin/x is revoked"),
        (["token", "FILE", "--name", "x", "--keyspaces", ""], "is a list of names"),
        (["token", "FILE", "--name", "x", "--keyspaces", "a,,b"], "is a list of names"),
        (["token", "FILE", "--name", "x", "--keyspaces", "*a"], "is a list of names"),
        (["token", "FILE", "--name", "x", "--keyspaces", "a," * 1_100 + "a"], "more than 2048"),
        (
            ["token", "FILE", "--name", "x", "--role", "admin", "--keyspaces", "a"],
            "is for the roles reader and client, not admin",
        ),
        (["revoke", "FILE", "--name", ""], "printable characters"),
    ],
)
def test_a_command_that_cannot_be_done_says_so_and_changes_nothing(
    file: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_keys(file)
    words = {"FILE": file, "FIRST": before[0].id}

    assert main(["keys", *(words.get(word, word) for word in arguments)]) == 2

    assert message.replace("it is", f"{before[0].id} is") in capsys.readouterr().err
    assert read_keys(file) == before
    assert read_revoked(file) == {}


def test_the_key_that_is_used_is_not_removed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["keys", "add", file])
    first, second = read_keys(file)

    assert main(["keys", "remove", file, first.id, "--unseen"]) == 2

    assert "is in use: first use another key" in capsys.readouterr().err
    assert read_keys(file) == (first, second)


def test_a_certificate_is_used_in_place_of_a_key(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "job.pem"

    assert main(["keys", "issue", file, str(out), "--name", "a job", "--days", "3"]) == 0

    assert "ringpop:///client/a%20job, for 3 days" in capsys.readouterr().out
    assert out.stat().st_mode & 0o777 == 0o600
    assert read_keys(file)[0].line not in out.read_text()
    issued = KeyCredentials(str(out), Identity("", Role.ADMIN, "whoever uses it"))
    assert issued.key_ids == ()
    assert issued.context(server=False).get_ca_certs()[0]["subject"] == (
        (("commonName", f"ringpop cluster key {read_keys(file)[0].id}"),),
    )
    assert identity_in(None) is None
