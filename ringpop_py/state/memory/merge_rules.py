"""Rules of merging by name: the built-in ones, and an application's own functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.arguments import checked_callable, checked_text
from ringpop_py.base.errors import BadOperation, ConfigError
from ringpop_py.base.faults import is_fault, text_of
from ringpop_py.base.logs import log
from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.table.aggregations import check_value
from ringpop_py.state.table.evaluator import VALUE_BYTES_MAX
from ringpop_py.state.table.joins import RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringpop_py.base.values.operations import Value
    from ringpop_py.state.table.joins import Rule

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
        does not depend on the order of merges, nor on repetitions. If it fails, or its result
        cannot be stored, the newer value is kept, and a warning is logged.

        All members need it before the keyspace is opened: a node that does not know the rule of a
        keyspace takes over no data from others.

        Raises:
            ConfigError: if the name is taken, or is not 1 to 64 characters long, or *function*
                cannot be called.
        """
        checked_callable(function, f"the merge rule {name!r}")
        if not 0 < len(checked_text(name, "a merge rule's name")) <= NAME_CHARACTERS_MAX:
            raise ConfigError(f"a rule's name has 1 to {NAME_CHARACTERS_MAX} characters")
        if name in self._rules:
            raise ConfigError(f"there is a rule {name!r} already")
        self._rules[name] = function

    def find(self, name: str, keyspace: str) -> Rule:
        """Return the rule *name* for *keyspace*. Raises ConfigError if no rule has that name.

        A function that an application registered does not raise here: see `register`.
        """
        rule = self._rules.get(name)
        if rule is None:
            raise ConfigError(
                f"no merge rule is called {name!r}; there are {', '.join(self._rules)}"
            )
        return _guarded(keyspace, name, rule) if callable(rule) else rule


def _guarded(keyspace: str, name: str, function: MergeFunction) -> MergeFunction:
    def guarded(older: Value, newer: Value) -> Value:
        try:
            # Copies, because it may change its arguments.
            kept = function(_copied(older), _copied(newer))
        except BaseException as error:
            if not is_fault(error):
                raise
            # A bug of the application must not stop merges.
            why = f"{type(error).__name__}: {text_of(error)}"
        else:
            why = _obstacle(kept)
        if not why:
            return kept
        text = (
            f"keyspace {keyspace}: its merge rule {name!r} failed, the newer value is kept: {why}"
        )
        log.warning("merge-failed", keyspace=keyspace, rule=name, text=text)
        return newer

    return guarded


def _obstacle(value: Value) -> str:
    """Return why *value* cannot be stored; empty if it can be."""
    try:
        check_value(value)
        # Some numbers and texts cannot be packed. And a partition with a value that is too large
        # for a message could never be handed over.
        size = len(encode_value("msgpack", value))
    except (BadOperation, ValueError, TypeError, OverflowError) as error:
        return f"its result cannot be stored: {text_of(error)}"
    if size > VALUE_BYTES_MAX:
        return f"its result has {size} bytes when packed, of at most {VALUE_BYTES_MAX}"
    return ""


def _copied(value: Value) -> Value:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value
