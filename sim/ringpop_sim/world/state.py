"""The state of a node, or of any state machine, as plain values to compare and show."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def state_of(machine: object) -> dict[str, object]:
    """Return the whole state of *machine*: two machines with equal states act alike.

    An object becomes a dict of its attributes, without leading underscores; if it is met again, it
    is replaced by the path on which it was first met. A dict becomes a list of its items, because
    their order may count. A frozen value stays as it is.
    """
    return _object_state(machine, "", {})


def attributes_of(thing: object) -> Iterator[tuple[str, object]]:
    """Return the attributes of *thing* with their names, those in slots first."""
    if isinstance(thing, random.Random):
        # Its state is hundreds of numbers, of which only the equality matters.
        yield "state_hash", hash(thing.getstate())
        return
    # A class names only its own slots, not those of its bases.
    slots = [slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())]
    for name in [*slots, *getattr(thing, "__dict__", ())]:
        yield name, getattr(thing, name, None)  # a slot may never have been assigned


def _object_state(thing: object, path: str, met: dict[int, str]) -> dict[str, object]:
    met[id(thing)] = path  # before its attributes, which may lead back to it
    return {
        name.lstrip("_"): _state(value, f"{path}.{name.lstrip('_')}", met)
        for name, value in attributes_of(thing)
    }


def _state(thing: object, path: str, met: dict[int, str]) -> object:
    if isinstance(thing, AbstractSet):
        return frozenset(thing)
    if isinstance(thing, dict):
        return [(key, _state(value, f"{path}[{key}]", met)) for key, value in thing.items()]
    if isinstance(thing, list | deque | tuple):
        items = [_state(item, f"{path}[{at}]", met) for at, item in enumerate(thing)]
        changed = any(item is not before for item, before in zip(items, thing, strict=True))
        # A named tuple of plain values keeps its type, and its names.
        return items if changed or not isinstance(thing, tuple) else thing
    if _is_value(thing):
        return thing
    if id(thing) in met:
        return f"see {met[id(thing)]}"
    return _object_state(thing, path, met)


def _is_value(thing: object) -> bool:
    """Return whether *thing* is compared by content and cannot change; a function is a value."""
    by_identity = type(thing).__hash__ in (None, object.__hash__)
    return thing is None or callable(thing) or not by_identity
