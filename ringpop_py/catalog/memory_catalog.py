"""How keyspaces in memory mode get their generations: no store numbers them.

A generation is made of how many there were of that name, and of a hash of the definition. So two
nodes that create the same keyspace at once create the same generation of it, without having heard
of each other; and of two different ones, created on two sides of a cut, all choose the same one
afterwards, whatever they hear first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.catalog.catalog import CatalogEntry
from ringpop_py.errors import KeyspaceConflict
from ringpop_py.placing.keys import hash_text

if TYPE_CHECKING:
    from ringpop_py.placing.definition import Definition

MARK_BITS: Final = 32


def created(known: CatalogEntry | None, definition: Definition) -> CatalogEntry:
    """The entry of the keyspace of this *definition*, where *known* is what there was until now.

    Raises:
        KeyspaceConflict: there is one of this name that is defined otherwise; or there was a
            durable one, whose data are still in the store.
    """
    name = definition.name
    if known is not None and known.definition.mode != definition.mode:
        was = "was dropped, and was" if known.dropped else "exists, and is"
        message = f"keyspace {name!r} {was} {known.definition.mode}: choose another name"
        raise KeyspaceConflict(message)
    if known is None or known.dropped:
        number = (known.generation >> MARK_BITS if known is not None else 0) + 1
        return CatalogEntry(definition, number << MARK_BITS | _mark(definition))
    difference = known.definition.difference_from(definition)
    if difference:
        message = f"keyspace {name!r} exists and was created with {difference}"
        raise KeyspaceConflict(message)
    return known


def _mark(definition: Definition) -> int:
    record = definition.as_record()
    del record["checkpoint_interval_s"]  # means nothing here, and 10 is not written like 10.0
    return hash_text(repr(sorted(record.items()))) & ((1 << MARK_BITS) - 1)
