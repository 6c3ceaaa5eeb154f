"""The tree of errors: what each class says to a program that has caught it."""

from __future__ import annotations

import re

import pytest

from ringpop_py.base import errors
from ringpop_py.base.errors import RingpopError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


def test_each_error_is_public() -> None:
    assert sorted(errors.__all__) == sorted(kind.__name__ for kind in KINDS)


def test_each_error_has_a_code_of_its_own() -> None:
    codes = [vars(kind)["code"] for kind in KINDS]

    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_tells_whether_its_request_took_effect_and_may_succeed_later(
    kind: type[RingpopError],
) -> None:
    assert issubclass(kind, RingpopError)
    assert kind.took_effect in {"no", "unknown"}
    assert kind.passes in {True, False}
    assert 400 <= kind.http_status < 600
    assert kind.__doc__
    if kind.took_effect == "unknown":
        assert re.search(r"\b(open|may have|may still|All others took)\b", kind.__doc__)
