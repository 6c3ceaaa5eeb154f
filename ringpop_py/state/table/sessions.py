"""Which writes have an outcome: for each source the highest sequence, and a window before it.

If a caller chose the id of a write, its session has a digest of it, too: a hash of what it did. So
an id that is used for a second, different write is not mistaken for a repetition of the first. A
write that was refused for good has `refusal_of` its digest in the place of that; all others took
effect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import BadOperation, OperationTooOld
from ringpop_py.base.values.operations import DIGEST_BYTES, SOURCE_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WINDOW: Final = 4_096
SOURCES_MAX: Final = 65_536
"""The most sources that a partition remembers, of at most about 400 bytes each besides digests."""
DIGESTS_MAX: Final = 2 * SOURCES_MAX
"""The most digests that all sources of a partition have together, of `RECORD_BYTES` each. Beyond
it, the sources that wrote longest ago lose theirs, until half as many are left."""
JOBS_MAX: Final = 4_096
"""The most jobs that a partition remembers as sources, besides all others. Beyond it, the job that
wrote longest ago is forgotten."""
JOB_PREFIX: Final = "job/"
SEQUENCE_MAX: Final = (1 << 63) - 1

Session = tuple[int, int, bytes]
"""What is known of a source:

- its highest sequence;
- the missing sequences of the `WINDOW` before it, as bits: bit 0 for the one just before. If writes
  arrive in order, none is missing, so the number is small;
- records of the writes in the window that have a digest, ordered: the sequence and the digest."""

_WINDOW_BITS: Final = (1 << WINDOW) - 1
_SEQUENCE_BYTES: Final = 8
RECORD_BYTES: Final = _SEQUENCE_BYTES + DIGEST_BYTES
_REFUSED: Final = b"\0no\0"
"""How `refusal_of` begins. Copies that merge keep the greater record: that of an effect."""


def after(session: Session | None, sequence: int) -> Session | None:
    """Return *session* (None for a new source) with *sequence*; None if it already has that.

    Raises:
        OperationTooOld: if *sequence* is before the window, so it is not known.
    """
    if session is None:
        return sequence, (1 << min(sequence, WINDOW)) - 1, b""
    highest, missing, digests = session
    ahead = sequence - highest
    if ahead > WINDOW:
        return sequence, _WINDOW_BITS, b""  # every one in the window is missing
    if ahead > 0:
        if missing or ahead > 1:  # otherwise it is the next one, and none is missing
            missing = (missing << ahead | (1 << (ahead - 1)) - 1) & _WINDOW_BITS
        return sequence, missing, digests
    if ahead < -WINDOW:
        raise OperationTooOld(
            f"the write is too old: its source is {-ahead} writes ahead, "
            f"and only the last {WINDOW} are known by id"
        )
    bit = 1 << (-ahead - 1) if ahead else 0
    return (highest, missing ^ bit, digests) if missing & bit else None


def after_run(session: Session | None, first: int, count: int) -> Session:
    """Return *session* with *count* sequences from *first* on, which all are above its highest."""
    session = after(session, first)
    assert session is not None, "they are new"
    highest, missing, digests = session
    ahead = count - 1
    return highest + ahead, missing << ahead & _WINDOW_BITS if missing else 0, digests


def refusal_of(digest: bytes) -> bytes:
    """Return what is kept in the place of the *digest* of a write, perhaps empty, if refused."""
    return _REFUSED + (digest or bytes(DIGEST_BYTES))[: -len(_REFUSED)]


def record_of(sequence: int, digest: bytes) -> bytes:
    """Return the record of a write with a *digest*."""
    return sequence.to_bytes(_SEQUENCE_BYTES, "big") + digest


def with_records(session: Session, records: Iterable[bytes]) -> Session:
    """Return *session* with *records* of its writes, without those that have left the window."""
    highest, missing, digests = session
    news = sorted(records)
    if news and news[0][:_SEQUENCE_BYTES] <= digests[-RECORD_BYTES:-DIGEST_BYTES]:
        # Of two records of one write the greater stays: copies agree in whatever order they merge.
        ordered = sorted([*records_in(digests), *news])
        digests, news = b"", list({each[:_SEQUENCE_BYTES]: each for each in ordered}.values())
    digests += b"".join(news)
    return highest, missing, digests[_first_from(digests, highest - WINDOW) :]


def digest_in(digests: bytes, sequence: int) -> bytes:
    """Return the digest of *sequence* among the *digests* of a session; empty if unknown."""
    at = _first_from(digests, sequence)
    record = digests[at : at + RECORD_BYTES]
    return record[_SEQUENCE_BYTES:] if record.startswith(record_of(sequence, b"")) else b""


def _first_from(digests: bytes, sequence: int) -> int:
    wanted = record_of(max(sequence, 0), b"")
    if digests[:_SEQUENCE_BYTES] >= wanted:  # mostly
        return 0
    starts = range(0, len(digests), RECORD_BYTES)
    place = bisect_left(starts, wanted, key=lambda at: digests[at : at + _SEQUENCE_BYTES])
    return place * RECORD_BYTES


def are_digests(value: bytes) -> bool:
    """Return whether *value* can be the digests of a session; their order is not checked."""
    return len(value) % RECORD_BYTES == 0 and len(value) <= (1 + WINDOW) * RECORD_BYTES


def records_in(digests: bytes) -> list[bytes]:
    """Return the records in the *digests* of a session."""
    starts = range(0, len(digests), RECORD_BYTES)
    return [digests[start : start + RECORD_BYTES] for start in starts]


def joined(one: Session, other: Session) -> Session:
    """Return the union of *one* and *other*, two copies of the session of one source."""
    (highest, missing, digests), (lower, missing_there, more) = sorted((one, other), reverse=True)
    # A write is missing in the union if both miss it; the lower one also misses those ahead of it.
    ahead = highest - lower
    if ahead <= WINDOW:
        if ahead:
            missing_there = missing_there << ahead | (1 << (ahead - 1)) - 1
        missing &= missing_there
    return with_records((highest, missing, digests), records_in(more))


def check_id(source: object, sequence: object) -> None:
    """Check that *source* and *sequence* can identify a write. Raises BadOperation."""
    if not isinstance(source, str) or not 0 < len(source) <= SOURCE_CHARACTERS_MAX:
        wanted = f"text of 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadOperation(f"an operation's source is {wanted}")
    try:
        source.encode()
    except UnicodeEncodeError:
        raise BadOperation("an operation's source is not valid Unicode") from None
    if type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MAX:
        raise BadOperation("an operation's sequence is a whole number from 0, of 63 bits")


class Sessions:
    """The sessions of all sources, in the order in which they wrote last.

    If there are more than *sources_max*, the source that wrote longest ago is forgotten; if it then
    repeats a write, that takes effect again. Sources that begin with `JOB_PREFIX` are counted
    apart: a job can be repeated much later, and many other sources must not make it forgotten. If
    there are more than *digests_max* digests, a source may lose its own before: then the id of a
    repeated write is known, but not what it stood for. Refusals are not lost before their source:
    the write would be taken for one that took effect.
    """

    def __init__(
        self,
        sources_max: int = SOURCES_MAX,
        jobs_max: int = JOBS_MAX,
        *,
        digests_max: int = DIGESTS_MAX,
    ) -> None:
        self._sources_max = sources_max
        self._jobs_max = jobs_max
        self._digests_bytes_max = digests_max * RECORD_BYTES
        self._digests_bytes = 0
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._jobs: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions) + len(self._jobs)

    def get(self, source: str) -> Session | None:
        """Return the session of *source*; None if it is unknown."""
        return self._sessions.get(source) or self._jobs.get(source)

    def update(self, sessions: Mapping[str, Session]) -> None:
        """Set *sessions*, whose sources wrote last, in that order."""
        grown_bytes = 0
        for source, session in sessions.items():
            rows = self._jobs if source.startswith(JOB_PREFIX) else self._sessions
            before = rows.get(source)
            if before is not None:
                grown_bytes -= len(before[2])
                rows.move_to_end(source)
            rows[source] = session
            grown_bytes += len(session[2])
        self._digests_bytes += grown_bytes
        while len(self._sessions) > self._sources_max:
            self._digests_bytes -= len(self._sessions.popitem(last=False)[1][2])
        while len(self._jobs) > self._jobs_max:
            self._digests_bytes -= len(self._jobs.popitem(last=False)[1][2])
        if self._digests_bytes > self._digests_bytes_max:
            self._forget_digests()

    def add_digests(self, source: str, digests: bytes) -> None:
        """Add *digests* of writes of *source* if it is known; it keeps its place in the order."""
        before = self.get(source)
        if before is not None:
            session = with_records(before, records_in(digests))
            rows = self._jobs if source.startswith(JOB_PREFIX) else self._sessions
            rows[source] = session
            self._digests_bytes += len(session[2]) - len(before[2])
            if self._digests_bytes > self._digests_bytes_max:
                self._forget_digests()

    def _forget_digests(self) -> None:
        # Half of them, so that this is rare: it looks at all sources.
        for rows in (self._jobs, self._sessions):
            for source, (highest, missing, digests) in rows.items():
                if self._digests_bytes <= self._digests_bytes_max // 2:
                    return
                # No caller's write has a condition and the source of a job.
                records = () if rows is self._jobs else records_in(digests)
                kept = b"".join(r for r in records if r.startswith(_REFUSED, _SEQUENCE_BYTES))
                rows[source] = highest, missing, kept
                self._digests_bytes -= len(digests) - len(kept)
        while self._digests_bytes > self._digests_bytes_max // 2:  # so there are sessions
            self._digests_bytes -= len(self._sessions.popitem(last=False)[1][2])

    def replace(self, rows: Iterable[tuple[str, Session]]) -> None:
        """Replace all by *rows*, of which the first wrote longest ago."""
        self._sessions.clear()
        self._jobs.clear()
        self._digests_bytes = 0
        self.update(dict(rows))

    def rows(self) -> tuple[tuple[str, Session], ...]:
        """Return all: jobs, then the others; in each, the one that wrote longest ago is first."""
        return (*self._jobs.items(), *self._sessions.items())
