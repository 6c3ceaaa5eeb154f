"""Who owns the keys of a request: what a receiver refuses."""

from __future__ import annotations

import pytest

from ringpop_py.member.ring.hashring import HashRing
from ringpop_py.route.proxy.owners import refusal


@pytest.mark.parametrize("lost", range(3))
def test_keys_are_refused_whichever_of_them_is_anothers(lost: int) -> None:
    ring = HashRing(["me", "b"])
    ours = [key for key in map(str, range(100)) if ring.lookup(key) == "me"]
    theirs = next(key for key in map(str, range(100)) if ring.lookup(key) == "b")
    keys = ours[:3]

    accepted = refusal(keys, None, local="me", ring=ring, consistency="keys")
    keys[lost] = theirs
    refused = refusal(keys, None, local="me", ring=ring, consistency="keys")

    assert accepted == ""
    assert refused == "ringpop.request-proxy.invalid-key: me has b as the key's owner"
