"""How a client's request is tried, as its daemon is asked for it (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ringpop_py.base.arguments import check_names, checked_kind, checked_seconds
from ringpop_py.base.config.settings import ProxyConfig
from ringpop_py.route.proxy.head import HeadOptions, Tries
from ringpop_py.route.proxy.request import RequestOptions
from ringpop_py.route.proxy.retry import SchedulePolicy

if TYPE_CHECKING:
    from ringpop_py.route.proxy.entry import AllHead, ForwardHead
    from ringpop_py.route.proxy.head import Head

PART_MARGIN_S: Final = 0.5
PART_MARGIN: Final = 0.1
_USUAL: Final = ProxyConfig()


def sent_options(options: RequestOptions) -> HeadOptions:
    """Return the fields that tell a daemon of *options*.

    Raises:
        ConfigError: an option is not what it has to be, as far as can be seen without the daemon's
            own configuration.
    """
    if not options:
        return {}
    check_options(options)
    sent = HeadOptions(idempotent=options.get("idempotent", False))
    if "failover" in options:
        sent["failover"] = options["failover"]
    if "max_retries" in options or "retry_schedule" in options:
        schedule = options.get("retry_schedule")
        sent["tries"] = Tries(
            options.get("max_retries"), None if schedule is None else tuple(map(float, schedule))
        )
    return sent


def check_options(options: RequestOptions) -> None:
    """Raise ConfigError for options that no daemon could follow."""
    check_names(options, RequestOptions.__annotations__, "option")
    checked_seconds(options.get("deadline_s", 0.0), "deadline_s")
    schedule_s = schedule_in(options, _USUAL.retry_schedule_s)
    failover = options.get("failover", 1)
    least = failover - 1 if isinstance(failover, int) else 0  # the daemon's may be more
    retries = options.get("max_retries", max(_USUAL.max_retries, least))
    SchedulePolicy(retries, schedule_s, options.get("idempotent", False), failover=failover)


def schedule_in(options: RequestOptions, default: tuple[float, ...]) -> tuple[float, ...]:
    """Return the schedule in *options*. Raises ConfigError if it is no list."""
    schedule_s = options.get("retry_schedule", default)
    checked_kind(schedule_s, Sequence, "retry_schedule", "a list of seconds")
    return tuple(schedule_s)


def time_for_parts(ttl_s: float) -> float:
    """Return how long the parts of a request may take that is answered within *ttl_s*.

    The rest is for the answer: one owner that is silent must not cost those of the others.
    """
    return ttl_s - min(PART_MARGIN_S, PART_MARGIN * ttl_s)


def received_options(head: Head | ForwardHead | AllHead, deadline_s: float) -> RequestOptions:
    """Return how a client wants its request to be tried, within *deadline_s*."""
    options = RequestOptions(idempotent=head.idempotent, deadline_s=deadline_s)
    if head.tries.max_retries is not None:
        options["max_retries"] = head.tries.max_retries
    if head.tries.schedule_s is not None:
        options["retry_schedule"] = head.tries.schedule_s
    if head.failover > 1:
        options["failover"] = head.failover
    return options
