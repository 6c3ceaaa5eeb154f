"""What is revoked: its lines in a file of keys, and what is issued beside it."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.net.security.authority import bundle_of
from ringpop_py.net.security.clock import wall_s
from ringpop_py.net.security.credentials import KeyCredentials
from ringpop_py.net.security.identity import Identity, Role
from ringpop_py.net.security.keys import new_key, read_keys, read_revoked, write_keys, write_secret
from ringpop_py.net.security.revocations import (
    MARK,
    NOTHING,
    REVOKED_MAX,
    holders_of,
    issued_after,
    lines_of,
    revoked_until,
    revoking,
    without,
)
from ringpop_py.net.security.tokens import TokenRefused, identity_in_token, issue_token

if TYPE_CHECKING:
    from pathlib import Path

KEY = new_key()
DAY = dt.timedelta(days=1)
JOB = Identity("", Role.CLIENT, "a job/π")
HOLDERS = holders_of(JOB.name, None)


def test_it_stands_beside_the_keys_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    file, revoked = tmp_path / "key", revoking(NOTHING, HOLDERS, 1_800_000_000.9)
    write_keys(file, (KEY,), replace=False, revoked=revoked)

    assert read_keys(file) == (KEY,)
    assert read_revoked(file) == revoked
    assert revoked_until(revoked, JOB) == 1_800_000_000
    assert file.read_text().isascii()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "client/x",
        "client/x soon",
        "nobody/x 2026-01-01T00:00:00+00:00",
        "member/x 2026-01-01T00:00:00+00:00",
    ],
)
def test_a_line_that_is_wrong_says_where_and_nothing_is_read(tmp_path: Path, line: str) -> None:
    file = tmp_path / "key"
    write_secret(file, f"{KEY.line}\n{MARK}{line}\n", replace=False)

    with pytest.raises(ConfigError, match=r"key, line 2: .* is expected"):
        KeyCredentials(str(file), JOB)


def test_it_has_a_limit() -> None:
    lines_of({(Role.CLIENT, str(number)): 1 for number in range(REVOKED_MAX)})
    with pytest.raises(ConfigError, match="another key revokes all of them"):
        lines_of({(Role.CLIENT, str(number)): 1 for number in range(REVOKED_MAX + 1)})


def test_it_is_of_both_roles_or_one_and_never_of_a_member() -> None:
    assert [(Role.CLIENT, JOB.name), (Role.ADMIN, JOB.name)] == HOLDERS
    assert holders_of("x", Role.ADMIN) == [(Role.ADMIN, "x")]
    for role in (Role.MEMBER, Role.SHUFFLES):
        with pytest.raises(ConfigError, match=f"a {role.label} is not revoked by its name"):
            holders_of("x", role)


def test_it_is_taken_back_alone() -> None:
    other = (Role.CLIENT, "other")
    revoked = revoking(revoking(NOTHING, HOLDERS, 1), [other], 2)

    assert without(revoked, HOLDERS) == {other: 2}
    with pytest.raises(ConfigError, match="nothing of client/x or admin/x is revoked"):
        without(revoked, holders_of("x", None))


@pytest.mark.parametrize("ahead_s", [0, 3_600])
def test_a_token_issued_afterwards_counts_even_if_a_clock_was_ahead(
    tmp_path: Path, ahead_s: float
) -> None:
    token = issue_token(KEY, JOB, DAY)
    now_s = wall_s() + ahead_s
    revoked = revoking(NOTHING, HOLDERS, now_s)

    with pytest.raises(TokenRefused, match="the token is revoked"):
        identity_in_token(token, [KEY], revoked)
    assert identity_in_token(token, [KEY], {}) == JOB
    assert identity_in_token(issue_token(KEY, JOB, DAY, revoked), [KEY], revoked) == JOB
    assert issued_after(revoked, JOB, now_s) > revoked_until(revoked, JOB)
    for name, bundle, counts in (
        ("old", bundle_of([KEY], JOB, DAY), False),
        ("new", bundle_of([KEY], JOB, DAY, revoked), True),
    ):
        write_secret(tmp_path / name, bundle + lines_of(revoked), replace=False)
        shown = KeyCredentials(str(tmp_path / name), JOB)
        assert (shown.proof_in(certificate_in(shown)).why_over() is None) is counts


def test_a_reader_is_revoked_with_the_client_of_its_name() -> None:
    reader = JOB._replace(role=Role.READER)
    token = issue_token(KEY, reader, DAY)
    for holders, counts in (([HOLDERS[0]], False), ([HOLDERS[1]], True)):
        revoked = revoking(NOTHING, holders, wall_s())
        assert (revoked_until(revoked, reader) < 0) is counts
    with pytest.raises(TokenRefused, match="the token is revoked"):
        identity_in_token(token, [KEY], revoking(NOTHING, HOLDERS, wall_s()))
    assert "reader" not in lines_of(revoking(NOTHING, HOLDERS, 1))  # older nodes read no such line


def certificate_in(credentials: KeyCredentials) -> dict[str, object]:
    """Return the own certificate of *credentials*, as a peer of theirs sees it."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = credentials.context(server=True).wrap_bio(there, back, server_side=True)
    client = credentials.context(server=False).wrap_bio(back, there)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    found = server.getpeercert()
    assert found is not None
    return dict(found)
