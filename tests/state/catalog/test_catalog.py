"""What keyspaces there are, by the word of the store, when several create them at once."""

from __future__ import annotations

from ringpop_py.state.catalog.catalog import Catalog
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.stores.memory import MemoryStore


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


def test_a_change_that_another_one_overtakes_replaces_that() -> None:
    class Overtaken(MemoryStore):
        overtakes = False

        def put_if_absent(self, key: str, value: bytes) -> bool:
            if self.overtakes:
                self.overtakes = False
                Catalog(self, "c").change("counts", 5)
            return super().put_if_absent(key, value)

    store = Overtaken()
    catalog = Catalog(store, "c")
    catalog.create(Definition(name="counts", partitions=4, min_cluster_size=3))
    store.overtakes = True

    ours, former = catalog.change("counts", 2)

    assert (former.min_cluster_size, former.revision) == (5, 1)
    assert (ours.definition.min_cluster_size, ours.definition.revision) == (2, 2)
    assert catalog.find("counts") == ours
    assert [entry.generation for entry in catalog.generations("counts")] == [1]


def test_revisions_are_in_the_order_of_their_numbers_and_the_first_may_be_damaged() -> None:
    store = MemoryStore()
    catalog = Catalog(store, "c")
    first = catalog.create(Definition(name="counts", partitions=4))
    for count in range(2, 14):
        catalog.change("counts", count)
    key = catalog.keys_of(first).definition
    store.delete([key])
    store.put_if_absent(key, b"damaged")

    found = catalog.find("counts")

    assert found is not None
    assert (found.definition.min_cluster_size, found.definition.revision) == (13, 12)


def test_a_revision_is_restored_under_the_name_of_the_first() -> None:
    catalog = Catalog(MemoryStore(), "c")
    definition = Definition(name="counts", partitions=4, min_cluster_size=3).revised(1)

    reserved = catalog.reserve(definition, "restored from x")
    hidden = catalog.find("counts")
    catalog.complete(reserved)

    assert hidden is None
    assert catalog.find("counts") == reserved
    assert (reserved.definition, reserved.origin) == (definition, "restored from x")
    assert catalog.create(Definition(name="counts", partitions=4, min_cluster_size=3)) == reserved
