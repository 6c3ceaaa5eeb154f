"""Whatever happens, a reminder comes until a turn with it is saved, and takes effect once."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.state.actors.reminder_room import ReminderRoom, Variant

SEEDS: Final = 60
STEPS: Final = 250

VARIANTS: Final = {
    "over by an entry before its turn": Variant(driver="taken off first"),
    "taken off after it was armed again": Variant(driver="taken off at the end"),
    "by its own clock": Variant(driver="own clock"),
    "not taken off": Variant(reminders=("if other != name}", "if True}")),
    "armed by a turn that fails": Variant(reminders=("dict(armed)", "armed")),
    "off the grid": Variant(reminders=("at_ms=at_ms + times", "at_ms=due_ms + times")),
    "made up for": Variant(reminders=("max(due_ms - at_ms, 0)", "0")),
    "delivered before it is due": Variant(reminders=("if armed.at_ms <= due_ms)", ")")),
    "only if it is the first": Variant(reminders=("first_ms = min(", "first_ms = max(")),
    "postponed for good": Variant(
        reminders=("min(max(now_ms - since_ms, FIRST_RETRY_MS), RETRY_MS_MAX)", "NEVER_MS")
    ),
    "woken again at work": Variant(reminders=("if actor not in self.begun", "if True")),
    "unknown where it was restored": Variant(
        reminders=("self.used = self.used or self.wakes.used", "pass")
    ),
    "not of this version": Variant(
        mailboxes=(
            'raise ConditionFailed("the actor has gone on elsewhere")\n        return Exp',
            "pass\n        return Exp",
        )
    ),
    "an expiry": Variant(reminders=("first_ms + WAKES", "first_ms")),
    "one that fails keeps others waiting": Variant(
        reminders=("if after is None or turn > after", "")
    ),
}


def live(variant: Variant) -> None:
    for seed in range(SEEDS):
        ReminderRoom(random.Random(seed), variant).run(STEPS)


def test_whatever_happens_reminders_come_and_take_effect_once() -> None:
    live(Variant())


@pytest.mark.parametrize("name", VARIANTS)
def test_each_wrong_form_is_found(name: str) -> None:
    with pytest.raises(AssertionError):
        live(VARIANTS[name])
