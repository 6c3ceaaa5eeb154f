"""What keyspaces there are, by the word of the store, when several create them at once."""

from __future__ import annotations

from ringpop_py.catalog.catalog import Catalog
from ringpop_py.placing.definition import Definition
from ringpop_py.stores.memory import MemoryStore


class StoreOfTwo(MemoryStore):
    """Just after the first listing of somebody, another one creates the keyspace, too."""

    def __init__(self, definition: Definition) -> None:
        super().__init__()
        self._definition = definition
        self.interrupts = False

    def list(self, prefix: str) -> list[str]:
        """As any store's."""
        found = super().list(prefix)
        if self.interrupts:
            self.interrupts = False
            Catalog(self, "c").create(self._definition)
        return found


def test_of_two_who_create_a_keyspace_at_once_both_have_the_same() -> None:
    definition = Definition(name="counts", partitions=4)
    store = StoreOfTwo(definition)
    store.interrupts = True

    ours = Catalog(store, "c").create(definition)

    assert ours.generation == 1
    assert [entry.generation for entry in Catalog(store, "c").generations("counts")] == [1]


def test_of_two_who_create_it_again_after_a_drop_both_have_the_same() -> None:
    definition = Definition(name="counts", partitions=4)
    store = StoreOfTwo(definition)
    Catalog(store, "c").create(definition)
    Catalog(store, "c").drop("counts")
    store.interrupts = True

    ours = Catalog(store, "c").create(definition)

    assert ours.generation == 2
    assert Catalog(store, "c").find("counts") == ours


def test_a_keyspace_can_be_dropped_though_the_definition_before_it_is_damaged() -> None:
    catalog = Catalog(MemoryStore(), "c")
    definition = Definition(name="counts", partitions=4)
    before = catalog.create(definition)
    catalog.drop("counts")
    catalog.create(definition)
    key = catalog.keys_of(before).definition
    catalog.store.delete([key])
    catalog.store.put_if_absent(key, b"damaged")

    dropped = catalog.drop("counts")

    assert (dropped.generation, dropped.dropped) == (2, True)
