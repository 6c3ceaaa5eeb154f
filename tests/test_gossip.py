"""`gossip`: what the driver of a node makes of the network's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringpop_py.errors import (
    BadRequest,
    CallError,
    CallTimeout,
    ConnectBroke,
    ConnectFailed,
    ConnectionLost,
    ConnectRefused,
    ConnectTooSlow,
    PeerDeclined,
    PeerSilent,
)
from ringpop_py.gossip import _reason_of

if TYPE_CHECKING:
    from ringpop_py.membership.messages import FailureReason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectRefused(""), "refused"),
        (ConnectBroke(""), "lost"),
        (ConnectionLost(""), "lost"),
        (PeerSilent(""), "timeout"),
        (ConnectTooSlow(""), "timeout"),
        (CallTimeout(""), "timeout"),
        (PeerDeclined(""), "declined"),
        (ConnectFailed("no route to host"), "failed"),
        (BadRequest(""), "failed"),
    ],
)
def test_only_what_the_peers_machine_says_is_told_as_a_refusal_or_a_loss(
    error: CallError, reason: FailureReason
) -> None:
    assert _reason_of(error) == reason
