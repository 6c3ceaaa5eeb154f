"""The state of a machine as plain values, to be compared and shown. It knows no class by name."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def state_of(machine: object) -> dict[str, object]:
    """Return all that *machine* is made of: two with equal states act alike.

    An object becomes a dict of its attributes, without leading underscores; where it comes up
    again, the path on which it was first met stands for it. A dict becomes a list of its items,
    for their order may count. A frozen value stays what it is.
    """
    return _object_state(machine, "", {})


def attributes_of(thing: object) -> Iterator[tuple[str, object]]:
    """Return the attributes of *thing* with their names, those in slots first."""
    if isinstance(thing, random.Random):
        yield "state_hash", hash(thing.getstate())
        return
    slots = [slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())]
    for name in [*slots, *getattr(thing, "__dict__", ())]:
        yield name, getattr(thing, name, None)


def _object_state(thing: object, path: str, met: dict[int, str]) -> dict[str, object]:
    met[id(thing)] = path
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
        return items if changed or not isinstance(thing, tuple) else thing
    if _is_value(thing):
        return thing
    if id(thing) in met:
        return f"see {met[id(thing)]}"
    return _object_state(thing, path, met)


def _is_value(thing: object) -> bool:
    """Whether *thing* is compared by what it holds and cannot change; a function is a value."""
    by_identity = type(thing).__hash__ in (None, object.__hash__)
    return thing is None or callable(thing) or not by_identity
