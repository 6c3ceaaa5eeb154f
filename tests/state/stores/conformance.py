"""What every store must do.

To try your own, in a test file of yours::

    @pytest.mark.parametrize("check", CHECKS, ids=name_of)
    def test_it_is_a_store(check: Check, tmp_path: Path) -> None:
        check(lambda: MyStore(tmp_path))

Each check is given a function that opens the one store under test; it is called several times, and
what was put by one of those handles must be seen by all. The store may hold other keys already.
`URL_CHECKS` are for stores that outlive a process, and that `open_store` knows.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import string
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import StoreUnavailable
from ringpop_py.state.stores import open_store
from ringpop_py.state.stores.pieces import MAGIC, PIECES, SWEEP_S, PiecedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringpop_py.state.stores.store import Store

Opener = Callable[[], "Store"]
Check = Callable[[Opener], None]

KEYS_COUNT = 1_010  # S3 lists a thousand at a time
THREADS_COUNT = 8
RACES_COUNT = 10
PROCESS_RACES_COUNT = 60
KILLS_COUNT = 8
LARGE_BYTES = 8 << 20
CUT_BYTES = 1_000

ODD_KEYS = [
    *("", "/", "a/", "/a", "a//b", ".", "..", "a/.", "a/../b", "./a", "a b", "a\n", "\na", "a\0b"),
    *("ä", "a\\b", "a:b", "a+", "a*", "a?", "x" * 201, "/".join(["x" * 100] * 9)),
]
ODD_PREFIXES = ["a", "/", "/a/", "a//", "../", "./", "a/../", "a\n/", "ä/", f"{'x' * 201}/"]
EDGE_KEYS = [
    *("a", "A", "...", "-", "_", "=", "%2F", "%", "a.b", ".a", "a.", "0"),
    *("x" * 200, "/".join(["x" * 99] * 8), f"{string.ascii_letters}{string.digits}._=-%"),
]


def name_of(check: object) -> str:
    """What a check says, as a test's id."""
    return str(getattr(check, "__name__", check))


@contextlib.contextmanager
def opened(open_it: Opener) -> Iterator[tuple[Store, str]]:
    """A handle, and the prefix of keys that nobody used before."""
    store = open_it()
    try:
        yield store, f"{secrets.token_hex(6)}/"
    finally:
        store.close()


def an_absent_key_has_no_value(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        assert store.get(f"{at}a") is None
        assert store.list(at) == []


def a_value_is_read_as_it_was_put(open_it: Opener) -> None:
    large = secrets.token_bytes(LARGE_BYTES)
    with opened(open_it) as (store, at):
        for number, value in enumerate([b"", b"\0", bytes(range(256)), large]):
            assert store.put_if_absent(f"{at}{number}", value) is True
            assert store.get(f"{at}{number}") == value


def a_refused_put_leaves_the_old_value(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        for old in (b"old", b""):
            key = f"{at}{len(old)}"
            store.put_if_absent(key, old)

            assert store.put_if_absent(key, old) is False
            assert store.put_if_absent(key, b"new") is False
            assert store.get(key) == old


def a_list_has_the_keys_of_its_prefix_in_order(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        put = [f"{at}{key}" for key in ("b/2", "b/10", "a", "a/1", "a/1/2", "ab/1", "a-/1", "a0/1")]
        for key in put:
            store.put_if_absent(key, b"x")

        assert store.list(f"{at}a/") == [f"{at}a/1", f"{at}a/1/2"]
        assert store.list(f"{at}b/") == [f"{at}b/10", f"{at}b/2"]
        assert store.list(f"{at}c/") == []
        assert store.list(f"{at}a/1/2/") == []
        assert store.list(at) == sorted(put)
        everything = store.list("")
        assert everything == sorted(everything)
        assert set(put) <= set(everything)


def a_long_list_is_complete(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        keys = [f"{at}{number:06}" for number in range(KEYS_COUNT)]
        with ThreadPoolExecutor(THREADS_COUNT) as pool:
            assert all(pool.map(lambda key: store.put_if_absent(key, b"x"), keys))

        assert store.list(at) == keys

        store.delete(keys)
        assert store.list(at) == []


def deleting_is_done_once_and_harms_nothing_twice(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        for name in "abc":
            store.put_if_absent(f"{at}{name}", name.encode())

        for _ in range(2):
            store.delete([f"{at}a", f"{at}c", f"{at}never/was", f"{at}a"])

            assert store.list(at) == [f"{at}b"]
            assert store.get(f"{at}a") is None
        store.delete([])
        assert store.put_if_absent(f"{at}a", b"again")
        assert store.get(f"{at}a") == b"again"


def odd_keys_are_refused_by_every_verb(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        store.put_if_absent(f"{at}good", b"x")
        for odd in ODD_KEYS:
            assert refuses(partial(store.put_if_absent, odd, b"x")), odd
            assert refuses(partial(store.get, odd)), odd
            assert refuses(partial(store.delete, [f"{at}good", odd])), odd
        for odd in ODD_PREFIXES:
            assert refuses(partial(store.list, odd)), odd

        assert store.list(at) == [f"{at}good"]


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except ValueError:
        return True
    return False


def keys_at_the_edge_are_taken_as_they_are(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        keys = sorted({f"{at}{key}"[:800] for key in EDGE_KEYS})
        for key in keys:
            assert store.put_if_absent(key, key.encode()), key

        assert store.list(at) == keys
        assert [store.get(key) for key in keys] == [key.encode() for key in keys]


def of_racing_threads_one_wins_and_all_read_its_value(open_it: Opener) -> None:
    with contextlib.ExitStack() as stack:
        store, at = stack.enter_context(opened(open_it))
        stores = [store, stack.enter_context(opened(open_it))[0]] * (THREADS_COUNT // 2)
        barrier = threading.Barrier(THREADS_COUNT)

        def run(mine: Store, name: bytes) -> list[tuple[bool, bytes | None]]:
            said = []
            for race in range(RACES_COUNT):
                barrier.wait(30)
                was_put = mine.put_if_absent(f"{at}{race}", name)
                said.append((was_put, mine.get(f"{at}{race}")))
            return said

        with ThreadPoolExecutor(THREADS_COUNT) as pool:
            names = [b"thread %d" % number for number in range(THREADS_COUNT)]
            said = list(pool.map(run, stores, names))

        for race, results in enumerate(zip(*said, strict=True)):
            winners = [name for name, (won, _) in zip(names, results, strict=True) if won]
            assert len(winners) == 1, (race, winners)
            assert {value for _, value in results} == set(winners), race


def whoever_opens_it_finds_everything(open_it: Opener) -> None:
    with opened(open_it) as (store, at):
        store.put_if_absent(f"{at}a/b", b"1")
        with opened(open_it) as (other, _):
            assert other.get(f"{at}a/b") == b"1"
            assert other.put_if_absent(f"{at}a/b", b"2") is False
            assert other.put_if_absent(f"{at}c", b"3")
        assert store.list(at) == [f"{at}a/b", f"{at}c"]

    with opened(open_it) as (later, _):
        assert later.list(at) == [f"{at}a/b", f"{at}c"]
        assert [later.get(f"{at}a/b"), later.get(f"{at}c")] == [b"1", b"3"]


def pieces_in(store: Store, at: str) -> list[str]:
    """The keys of all pieces of values under *at*, which ends with a slash."""
    return store.list(f"{at}{PIECES}/")


def bare(open_it: Opener) -> Opener:
    """What opens the store without what cuts values for it."""

    def open_bare() -> Store:
        store = open_it()
        return store.inner if isinstance(store, PiecedStore) else store

    return open_bare


def a_value_that_is_too_large_is_put_in_pieces(open_it: Opener) -> None:
    with opened(bare(open_it)) as (store, at), opened(bare(open_it)) as (other, _):
        cut, reader = PiecedStore(store, CUT_BYTES), PiecedStore(other, CUT_BYTES)
        for name, value in {
            "a": secrets.token_bytes(10 * CUT_BYTES),
            "a/b": secrets.token_bytes(CUT_BYTES + 1),
            "c": MAGIC,
        }.items():
            key = f"{at}{name}"
            assert cut.put_if_absent(key, value) is True
            assert store.get(key) != value
            assert cut.put_if_absent(key, value) is False
            assert cut.put_if_absent(key, b"") is False
            assert reader.get(key) == value
        assert cut.put_if_absent(f"{at}d", bytes(CUT_BYTES))
        assert store.get(f"{at}d") == bytes(CUT_BYTES)

        assert cut.list(at) == [f"{at}{name}" for name in ("a", "a/b", "c", "d")]
        assert cut.list(f"{at}a/") == [f"{at}a/b"]

        cut.delete([f"{at}a", f"{at}d"])

        assert cut.get(f"{at}a") is None
        assert reader.get(f"{at}a/b") is not None
        cut.delete([f"{at}a/b", f"{at}c"])
        assert pieces_in(store, at) == store.list(at) == []


def of_racing_large_values_one_wins_and_only_its_pieces_stay(open_it: Opener) -> None:
    with opened(bare(open_it)) as (store, at), opened(bare(open_it)) as (other, _):
        stores = [PiecedStore(store, CUT_BYTES), PiecedStore(other, CUT_BYTES)] * 2
        barrier = threading.Barrier(len(stores))

        def run(mine: Store, value: bytes) -> tuple[bool, bytes | None]:
            barrier.wait(30)
            was_put = mine.put_if_absent(f"{at}a", value)
            return was_put, mine.get(f"{at}a")

        with ThreadPoolExecutor(len(stores)) as pool:
            values = [bytes([number]) * 5 * CUT_BYTES for number in range(len(stores))]
            said = list(pool.map(run, stores, values))

        (winner,) = [value for value, (won, _) in zip(values, said, strict=True) if won]
        assert {found for _, found in said} == {winner}
        assert len(pieces_in(store, at)) == 6
        stores[1].delete([f"{at}a"])
        assert store.list(at) == []


class Dying:
    """A way to *store* of a process that dies after so many puts."""

    in_memory = quick = True  # so that pieces are put one after the other
    value_bytes_max = None

    def __init__(self, store: Store, puts_count: int) -> None:
        self._store = store
        self._left = puts_count

    def put_if_absent(self, key: str, value: bytes) -> bool:
        self._left -= 1
        self._live()
        return self._store.put_if_absent(key, value)

    def get(self, key: str) -> bytes | None:
        self._live()
        return self._store.get(key)

    def list(self, prefix: str) -> list[str]:
        self._live()
        return self._store.list(prefix)

    def delete(self, _keys: object) -> None:
        raise StoreUnavailable("it is dead")

    def close(self) -> None: ...

    def _live(self) -> None:
        if self._left < 0:
            raise StoreUnavailable("it is dead")


def pieces_of_a_put_that_has_died_are_not_seen_and_are_removed(open_it: Opener) -> None:
    with opened(bare(open_it)) as (store, at):
        value = secrets.token_bytes(4 * CUT_BYTES)
        for puts_count in (0, 3, 5):  # the last one dies before the head
            with contextlib.suppress(StoreUnavailable):
                PiecedStore(Dying(store, puts_count), CUT_BYTES).put_if_absent(f"{at}a", value)
                raise AssertionError
        now = 0.0
        cut = PiecedStore(store, CUT_BYTES, lambda: now)

        assert (cut.get(f"{at}a"), cut.list(at)) == (None, [])
        assert len(pieces_in(store, at)) == 3 + 5
        assert cut.put_if_absent(f"{at}a", value)
        now = SWEEP_S - 1
        cut.delete([f"{at}b"])
        assert len(pieces_in(store, at)) == 3 + 5 + 5
        now = SWEEP_S
        cut.delete([f"{at}b"])
        assert len(pieces_in(store, at)) == 5
        assert cut.get(f"{at}a") == value
        now = 2 * SWEEP_S
        cut.delete([f"{at}b"])
        assert cut.get(f"{at}a") == value


CHECKS: Final[tuple[Check, ...]] = (
    an_absent_key_has_no_value,
    a_value_is_read_as_it_was_put,
    a_refused_put_leaves_the_old_value,
    a_list_has_the_keys_of_its_prefix_in_order,
    a_long_list_is_complete,
    deleting_is_done_once_and_harms_nothing_twice,
    odd_keys_are_refused_by_every_verb,
    keys_at_the_edge_are_taken_as_they_are,
    of_racing_threads_one_wins_and_all_read_its_value,
    whoever_opens_it_finds_everything,
    a_value_that_is_too_large_is_put_in_pieces,
    of_racing_large_values_one_wins_and_only_its_pieces_stay,
    pieces_of_a_put_that_has_died_are_not_seen_and_are_removed,
)


RACER = """
import sys
from ringpop_py.state.stores import open_store
url, at, name, count = sys.argv[1:]
store = open_store(url)
print("ready", flush=True)
sys.stdin.readline()
for race in range(int(count)):
    if store.put_if_absent(f"{at}{race}", name.encode()):
        print(race, flush=True)
"""

WRITER = """
import hashlib, sys
from ringpop_py.state.stores import open_store
url, at = sys.argv[1:]
store = open_store(url)
number = 0
while True:
    value = hashlib.sha256(b"%d" % number).digest() * 8_000
    if store.put_if_absent(f"{at}{number}", value):
        print(number, flush=True)
    number += 1
"""


@contextlib.contextmanager
def process(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of Python that is gone afterwards, whatever it does."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def of_racing_processes_one_wins_each_key(url: str) -> None:
    with contextlib.ExitStack() as stack:
        store, at = stack.enter_context(opened(lambda: open_store(url)))
        racers = [
            stack.enter_context(process(RACER, url, at, name, str(PROCESS_RACES_COUNT)))
            for name in ("one", "two")
        ]
        for racer in racers:
            assert racer.stdout
            assert racer.stdout.readline() == "ready\n"

        for racer in racers:
            assert racer.stdin
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.communicate(timeout=30)[0] for racer in racers]

        won = [sorted(map(int, text.split())) for text in said]
        assert sorted(won[0] + won[1]) == list(range(PROCESS_RACES_COUNT))
        for name, races in zip((b"one", b"two"), won, strict=True):
            assert all(store.get(f"{at}{race}") == name for race in races)


def what_a_killed_writer_leaves_is_whole_and_has_all_it_was_told(url: str) -> None:
    for kill in range(KILLS_COUNT):
        with opened(lambda: open_store(url)) as (store, at):
            with process(WRITER, url, at) as writer:
                assert writer.stdout
                for _ in range(3 + kill):
                    assert writer.stdout.readline()
                # A put takes about a millisecond: each kill hits another moment of one.
                time.sleep(0.0002 * kill)
                writer.kill()
                told = writer.stdout.read()  # what it could still say
            told_last = max(map(int, told.split()), default=2 + kill)

            keys = store.list(at)
            values = {key: store.get(key) for key in keys}
            with opened(lambda: open_store(url)) as (later, _):
                assert later.list(at) == keys

        assert {f"{at}{number}" for number in range(told_last + 1)} <= values.keys()
        for key, value in values.items():
            assert value == hashlib.sha256(key.removeprefix(at).encode()).digest() * 8_000, key


URL_CHECKS: Final[tuple[Callable[[str], None], ...]] = (
    of_racing_processes_one_wins_each_key,
    what_a_killed_writer_leaves_is_whole_and_has_all_it_was_told,
)
