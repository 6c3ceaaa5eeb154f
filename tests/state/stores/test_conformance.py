"""The checks of stores see what is broken: each variant here fails the check that is about it."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING

import pytest

from ringpop_py.state.stores.memory import MemoryStore
from tests.state.stores import conformance
from tests.state.stores.conformance import (
    CHECKS,
    Check,
    name_of,
    what_a_killed_writer_leaves_is_whole_and_has_all_it_was_told,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Overwrites(MemoryStore):
    def put_if_absent(self, key: str, value: bytes) -> bool:
        is_new = super().put_if_absent(key, value)
        if not is_new:
            self._values[key] = value
        return is_new


class SaysYes(MemoryStore):
    def put_if_absent(self, key: str, value: bytes) -> bool:
        super().put_if_absent(key, value)
        return True


class LooksThenPuts(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._met = threading.Barrier(2)

    def put_if_absent(self, key: str, value: bytes) -> bool:
        is_new = key not in self._values
        try:
            self._met.wait(0.05)
        except threading.BrokenBarrierError:
            self._met.reset()
        if is_new:
            self._values[key] = value
        return is_new


class EmptyIsNone(MemoryStore):
    def get(self, key: str) -> bytes | None:
        return super().get(key) or None


class ListsAThousand(MemoryStore):
    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[:1000]


class ListsByText(MemoryStore):
    def list(self, prefix: str) -> list[str]:
        return super().list(prefix) if not prefix else self._beginning(prefix.rstrip("/"))

    def _beginning(self, text: str) -> list[str]:  # type: ignore[valid-type] # list is a verb
        return sorted(key for key in self._values if key.startswith(text))


class ListsUnsorted(MemoryStore):
    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[::-1]


class DeletesOnce(MemoryStore):
    def delete(self, keys: object) -> None:
        for key in keys:  # type: ignore[attr-defined]
            del self._values[key]


class TakesAnyKey(MemoryStore):
    def get(self, key: str) -> bytes | None:
        return self._values.get(key)


class FoldsCase(MemoryStore):
    def put_if_absent(self, key: str, value: bytes) -> bool:
        return super().put_if_absent(key.lower(), value)


class Forgets(MemoryStore):
    def close(self) -> None:
        self._values.clear()


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Overwrites, conformance.a_refused_put_leaves_the_old_value),
        (SaysYes, conformance.a_refused_put_leaves_the_old_value),
        (SaysYes, conformance.of_racing_threads_one_wins_and_all_read_its_value),
        (LooksThenPuts, conformance.of_racing_threads_one_wins_and_all_read_its_value),
        (EmptyIsNone, conformance.a_value_is_read_as_it_was_put),
        (ListsAThousand, conformance.a_long_list_is_complete),
        (ListsByText, conformance.a_list_has_the_keys_of_its_prefix_in_order),
        (ListsUnsorted, conformance.a_list_has_the_keys_of_its_prefix_in_order),
        (DeletesOnce, conformance.deleting_is_done_once_and_harms_nothing_twice),
        (TakesAnyKey, conformance.odd_keys_are_refused_by_every_verb),
        (FoldsCase, conformance.keys_at_the_edge_are_taken_as_they_are),
        (Forgets, conformance.whoever_opens_it_finds_everything),
    ],
    ids=name_of,
)
def test_a_broken_store_fails_the_check(broken: type[MemoryStore], check: Check) -> None:
    store = broken()

    with pytest.raises((AssertionError, KeyError)):
        check(lambda: store)


# What the processes of `URL_CHECKS` would do with a folder as their store, if it were broken.
LOOKS_THEN_PUTS = """
import sys, time
from ringpop_py.state.stores import open_store
url, at, name, count = sys.argv[1:]
store = open_store(url)
print("ready", flush=True)
sys.stdin.readline()
for race in range(int(count)):
    if store.get(f"{at}{race}") is None:
        time.sleep(0.002)
        store.put_if_absent(f"{at}{race}", name.encode())
        print(race, flush=True)
"""
WRITES_IN_PLACE = """
import hashlib, os, pathlib, sys
url, at = sys.argv[1:]
folder = pathlib.Path(url.removeprefix("folder://"), at)
folder.mkdir()
for number in range(1000):
    value = hashlib.sha256(b"%d" % number).digest() * 8_000
    with (folder / f"{number}+").open("wb", buffering=0) as file:
        file.write(value[:100_000])
        os.fsync(file.fileno())
        file.write(value[100_000:])
    print(number, flush=True)
"""
TELLS_BEFORE = """
import hashlib, sys
from ringpop_py.state.stores import open_store
url, at = sys.argv[1:]
store = open_store(url)
for number in range(1000):
    print(number, flush=True)
    store.put_if_absent(f"{at}{number}", hashlib.sha256(b"%d" % number).digest() * 8_000)
"""


@pytest.mark.parametrize(
    ("program", "broken", "check"),
    [
        ("RACER", LOOKS_THEN_PUTS, conformance.of_racing_processes_one_wins_each_key),
        *(
            ("WRITER", broken, what_a_killed_writer_leaves_is_whole_and_has_all_it_was_told)
            for broken in (WRITES_IN_PLACE, TELLS_BEFORE)
        ),
    ],
    ids=["looks then puts", "writes in place", "tells before"],
)
def test_a_store_broken_between_processes_fails_the_check(
    program: str,
    broken: str,
    check: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conformance, program, broken)

    with pytest.raises(AssertionError):
        check(f"folder://{tmp_path}")


def test_every_check_is_among_those_that_are_run() -> None:
    def defined(parameter: str) -> list[object]:
        functions = [value for value in vars(conformance).values() if inspect.isfunction(value)]
        return [
            function
            for function in functions
            if list(inspect.signature(function).parameters) == [parameter]
            and function.__annotations__["return"] == "None"
        ]

    assert defined("open_it") == list(CHECKS)
    assert defined("url") == list(conformance.URL_CHECKS)
