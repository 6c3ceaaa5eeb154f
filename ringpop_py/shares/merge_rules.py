"""Rules of merging by name: the built-in ones, and an application's own functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.errors import BadOperation, ConfigError
from ringpop_py.faults import is_fault, text_of
from ringpop_py.keyed.aggregations import check_value
from ringpop_py.keyed.joins import RULES
from ringpop_py.logs import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.keyed.joins import Rule
    from ringpop_py.values.operations import Value

    MergeFunction = Callable[[Value, Value], Value]

NAME_CHARACTERS_MAX: Final = 64


class MergeRules:
    """The values that a keyspace's setting ``merge`` can have in this process."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {name: name for name in RULES}

    def register(self, name: str, function: MergeFunction) -> None:
        """Use *function* for keyspaces whose setting ``merge`` is *name*.

        It is called with the older and the newer value of a key, which are never equal, and returns
        the value to keep; it may change its arguments. Copies only become equal if the result
        does not depend on the order of merges, nor on repetitions. If it fails, the newer value is
        kept, and a warning is logged.

        All members need it before the keyspace is opened: a node that does not know the rule of a
        keyspace takes over no data from others.

        Raises:
            ConfigError: if the name is taken, or is not 1 to 64 characters long.
        """
        if not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise ConfigError(f"a rule's name has 1 to {NAME_CHARACTERS_MAX} characters")
        if name in self._rules:
            raise ConfigError(f"there is a rule {name!r} already")
        self._rules[name] = _guarded(name, function)

    def find(self, name: str) -> Rule:
        """Return the rule *name*. Raises ConfigError if there is none."""
        rule = self._rules.get(name)
        if rule is None:
            raise ConfigError(
                f"no merge rule is called {name!r}; there are {', '.join(self._rules)}"
            )
        return rule


def _guarded(name: str, function: MergeFunction) -> MergeFunction:
    def guarded(older: Value, newer: Value) -> Value:
        try:
            # Copies, because it may change its arguments.
            kept = function(_copied(older), _copied(newer))
            check_value(kept)
        except BadOperation as error:
            log.warning(
                "merge-failed", rule=name, text=f"{name}: its result cannot be stored: {error}"
            )
            return newer
        except BaseException as error:
            if not is_fault(error):
                raise
            # A bug of the application must not stop merges.
            why = f"{type(error).__name__}: {text_of(error)}"
            text = f"{name} failed, the newer value is kept: {why}"
            log.warning("merge-failed", rule=name, text=text)
            return newer
        return kept

    return guarded


def _copied(value: Value) -> Value:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value
