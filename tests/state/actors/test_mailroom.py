"""Whatever happens, each message is with its actor alone, in its turn, and takes effect once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from ringpop_py.state.actors import mailboxes
from tests.state.actors.mailroom import WAITING_MAX, Mailroom, broken

if TYPE_CHECKING:
    from types import ModuleType

SEEDS: Final = 150
STEPS: Final = 250

VARIANTS: Final = {
    "two loops for one actor": ("if seat.duty is not None:", "if False:"),
    "the latest message first": ("seat.mailbox.popleft()", "seat.mailbox.pop()"),
    "begins though asked for": ("if now < asked_at + HOLD_US:", "if False:"),
    "held though it came back": ("self._asked.pop(partition, None)", "self._asked.get(partition)"),
    "leaves while one works": ("return not at_work or", "return True or"),
    "never leaves": ("or now - first_at >= FINISH_US_MAX", "or False"),
    "evicts one at work": ("if seat.duty is None)", "if True)"),
    "works for nobody": ("if not message.abandoned:", "if True:"),
    "forgets those that wait": ("waiting += seat.mailbox", "pass"),
    "a reply of an old copy": ("if result != seat.record.packed:", "if False:"),
    "a failure leaves its state": (
        "                seat.actor = None  # it is made again, as saved\n",
        "",
    ),
    "a refusal leaves its state": (
        "        seat.actor = None  # it is made again, as saved\n        if",
        "        if",
    ),
    "runs what took effect": ("record.answer_to(message.mail) or", ""),
    "runs though it left": (
        "record.answer_to(message.mail) or seat.gone",
        "record.answer_to(message.mail)",
    ),
    "answers what did not take effect": ("if result.repeated:", "if False:"),
    "an old copy stays": ("if isinstance(why, Moved) or why.passes:", "if False:"),
    "a mailbox without an end": ("len(seat.mailbox) >= kind.mailbox_max or ", ""),
    "mailboxes without an end": (" or self.waiting_count >= WAITING_MAX", ""),
    "knows no other message": ("if known and mail.digest and known != mail.digest:", "if False:"),
}


def live(module: ModuleType) -> None:
    for seed in range(SEEDS):
        Mailroom(random.Random(seed), module).run(STEPS)


def test_whatever_happens_messages_take_effect_once_in_turn_and_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mailboxes, "WAITING_MAX", WAITING_MAX)
    live(mailboxes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_broken_variant_is_found(variant: str) -> None:
    module = broken(*VARIANTS[variant])
    module.WAITING_MAX = WAITING_MAX  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        live(module)
