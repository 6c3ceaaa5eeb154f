"""Messages to actors, and their answers, as bytes."""

from __future__ import annotations

import pytest

from ringpop_py import ApplicationError
from ringpop_py.base.errors import BodyError
from ringpop_py.base.faults import TEXT_CHARACTERS_MAX
from ringpop_py.base.values.declared import convert, decode, encode
from ringpop_py.state.actors.mail import Mail, MailAnswered

MAIL = Mail("bank", 2, 5, "Account", "alice/1", "source", 7, b"\x01")


def test_mail_comes_back_as_it_went() -> None:
    assert decode(Mail, MAIL.encode()) == MAIL


def test_an_actors_record_is_under_its_class_and_its_key() -> None:
    assert MAIL.stored_under == "Account/alice/1"


@pytest.mark.parametrize("answered", [MailAnswered(b"\x01"), MailAnswered(None, "kind", "why")])
def test_an_answer_comes_back_as_it_went(answered: MailAnswered) -> None:
    assert convert(MailAnswered, answered.as_row()) == answered


def test_errors_are_told_by_their_kind_and_not_at_any_length() -> None:
    assert MailAnswered.of_error(ApplicationError("overdrawn", "no")).error == ("overdrawn", "no")
    told = MailAnswered.of_error(KeyError("x" * (TEXT_CHARACTERS_MAX + 1))).error
    assert told is not None
    assert (told[0], len(told[1])) == ("KeyError", TEXT_CHARACTERS_MAX)


@pytest.mark.parametrize(
    "row",
    [[], ["bank", 2, 5, "Account", "alice", "s", -1, b""], ["bank", 2, 5, 1, "a", "s", 1, b""]],
)
def test_mail_of_another_shape_is_refused(row: object) -> None:
    with pytest.raises(BodyError):
        decode(Mail, encode(row))


@pytest.mark.parametrize("row", [None, [], [None], [1], [None, "kind"], [None, 1, "why"]])
def test_an_answer_of_another_shape_is_refused(row: object) -> None:
    with pytest.raises(BodyError):
        convert(MailAnswered, row)
