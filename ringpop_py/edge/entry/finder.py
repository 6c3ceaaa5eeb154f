"""Finds the key of each request, and says so in the log if a rule never finds one."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from ringpop_py.base.arguments import routed_key
from ringpop_py.base.logs import log
from ringpop_py.edge.entry.keys import key_rule, rule_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringpop_py.edge.entry.keys import Incoming, KeyRule

REQUESTS_MIN: Final = 100
"""After how many requests without a key the log says that the rule has found none."""


class KeyFinder:
    """A rule, and whether it has ever found a key. Threads may share it.

    Args:
        given: see `key_rule`.
        name: how the log calls it, if it does not say that itself.
    """

    def __init__(
        self, given: str | KeyRule | Sequence[str | KeyRule], name: str | None = None
    ) -> None:
        self._rule = key_rule(given)
        self._name = rule_named(given) if name is None else name
        self._found = False
        self._without = count(1)

    def key_of(self, asked: Incoming) -> str | None:
        """Return the key of a request; None if it has none.

        Raises:
            ConfigError: no request can have that key.
        """
        key = self._rule(asked)
        if key is not None:
            self._found = True
            return routed_key(key)
        if not self._found and next(self._without) == REQUESTS_MIN:
            text = (
                f"the first {REQUESTS_MIN} requests have no key according to {self._name!r}, "
                f"such as {asked.method} {asked.path}: each is answered by the host that has "
                "received it; a path begins with whatever the application is mounted at"
            )
            log.warning("no-key-found", rule=self._name, path=asked.path, text=text)
        return None
