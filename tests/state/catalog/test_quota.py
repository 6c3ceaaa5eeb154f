"""The limits on keyspaces of one cluster."""

from __future__ import annotations

import pytest

from ringpop_py.base.config.settings import StateConfig
from ringpop_py.base.errors import TooManyKeyspaces
from ringpop_py.state.catalog.catalog import CatalogEntry, created
from ringpop_py.state.catalog.quota import Quota
from ringpop_py.state.placement.definition import Definition, Mode

LIMITS = StateConfig(keyspaces_max=3, partitions_max=10)


def entry(name: str, partitions: int, *, dropped: bool = False) -> CatalogEntry:
    return CatalogEntry(Definition(name=name, partitions=partitions), 1, dropped)


def create(quota: Quota, name: str, partitions: int) -> None:
    with quota.creating(Definition(name=name, partitions=partitions)):
        pass


def test_dropped_keyspaces_and_those_of_the_cluster_do_not_count() -> None:
    there = [entry("a", 6), entry("b", 9, dropped=True), entry("~shuffles", 9)]
    quota = Quota(LIMITS, {each.name: each for each in there})

    create(quota, "c", 4)
    with pytest.raises(TooManyKeyspaces, match="has 6 partitions in all, it would have 11"):
        create(quota, "c", 5)
    with pytest.raises(TooManyKeyspaces, match="would have 15, and a node permits 10"):
        create(quota, "b", 9)  # anew


def test_a_client_has_less_than_the_cluster_and_others_go_on() -> None:
    limits = StateConfig(client_keyspaces_max=2, client_partitions_max=8)
    entries: dict[str, CatalogEntry] = {}
    quota = Quota(limits, entries)
    jobs, other = "ringpop://c/client/jobs", "ringpop://c/client/other"
    for name, partitions in (("a", 6), ("b", 1)):
        of_jobs = Definition(name=name, partitions=partitions, creator=jobs)
        with quota.creating(of_jobs):
            entries[name] = CatalogEntry(of_jobs, 1)

    with (
        pytest.raises(TooManyKeyspaces, match=f"{jobs} has 2 keyspaces.*--client-keyspaces-max N"),
        quota.creating(Definition(name="c", partitions=1, creator=jobs)),
    ):
        pass
    entries["b"] = entries["b"]._replace(dropped=True)
    with (
        pytest.raises(TooManyKeyspaces, match=r"has 6 partitions.*state.client_partitions_max"),
        quota.creating(Definition(name="c", partitions=3, creator=jobs)),
    ):
        pass
    for creator in (other, ""):
        with quota.creating(Definition(name="c", partitions=8, creator=creator)):
            pass


def test_an_existing_keyspace_may_be_created_again_whatever_the_limits() -> None:
    entries = {name: entry(name, 100) for name in "abcd"}

    create(Quota(LIMITS, entries), "a", 100)


def test_those_that_are_being_created_count_and_those_that_failed_do_not() -> None:
    quota = Quota(LIMITS, {})
    with (
        quota.creating(Definition(name="a", partitions=1)),
        quota.creating(Definition(name="a", partitions=1)),  # by two callers at a time
        quota.creating(Definition(name="b", partitions=1)),
        quota.creating(Definition(name="c", partitions=1)),
        pytest.raises(
            TooManyKeyspaces, match=r"3 keyspaces in all, it would have 4.*keyspaces-max"
        ),
    ):
        create(quota, "d", 1)
    with pytest.raises(ZeroDivisionError), quota.creating(Definition(name="d", partitions=10)):
        raise ZeroDivisionError
    create(quota, "e", 10)


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_a_different_creator_does_not_make_it_a_different_keyspace(mode: Mode) -> None:
    ours, theirs = (Definition(name="k", mode=mode, creator=who) for who in ("ours", "theirs"))
    ours.check_same(theirs)
    assert created(None, ours).generation == created(None, theirs).generation
    assert Definition.of_record(theirs.as_record()).creator == "theirs"
