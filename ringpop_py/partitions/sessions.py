"""Which writes have taken effect: for each source the highest sequence, and a window before it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ringpop_py.errors import BadOperation, OperationTooOld

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

WINDOW: Final = 4_096
SOURCES_MAX: Final = 65_536
"""About 400 bytes each at worst."""
JOBS_MAX: Final = 4_096
"""Sources that are jobs, beside all others: each is known until so many later jobs have written."""
JOB_PREFIX: Final = "job/"
SOURCE_CHARACTERS_MAX: Final = 256
SEQUENCE_MAX: Final = (1 << 63) - 1

Session = tuple[int, int]
"""The highest sequence of a source, and as bits what is missing of the `WINDOW` before it: bit 0
for the one just before. Where writes come in order nothing is missing, so the number is small."""

_WINDOW_BITS: Final = (1 << WINDOW) - 1


def after(session: Session | None, sequence: int) -> Session | None:
    """What *session* (None: the source is new) is with *sequence*; None if that is in it already.

    Raises:
        OperationTooOld: it is older than the window, so nobody can tell.
    """
    if session is None:
        return sequence, (1 << min(sequence, WINDOW)) - 1
    highest, missing = session
    ahead = sequence - highest
    if ahead > WINDOW:
        return sequence, _WINDOW_BITS
    if ahead > 0:
        if missing or ahead > 1:
            missing = (missing << ahead | (1 << (ahead - 1)) - 1) & _WINDOW_BITS
        return sequence, missing
    if ahead < -WINDOW:
        message = f"{-ahead} later writes of that source are known, the last {WINDOW} of them by id"
        raise OperationTooOld(message)
    bit = 1 << (-ahead - 1) if ahead else 0
    return (highest, missing ^ bit) if missing & bit else None


def joined(one: Session, other: Session) -> Session:
    """What is in *one* or *other*, two copies of the session of one source."""
    (highest, missing), (lower, missing_there) = sorted((one, other), reverse=True)
    ahead = highest - lower
    if ahead > WINDOW:
        return highest, missing
    if ahead:
        missing_there = missing_there << ahead | (1 << (ahead - 1)) - 1
    return highest, missing & missing_there


def check_id(source: object, sequence: object) -> None:
    """See that they can name a write.

    Raises:
        BadOperation: if they cannot.
    """
    if not isinstance(source, str) or not 0 < len(source) <= SOURCE_CHARACTERS_MAX:
        message = f"an operation's source is text of 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadOperation(message)
    if type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MAX:
        message = "an operation's sequence is a whole number from 0, of 63 bits"
        raise BadOperation(message)


class Sessions:
    """The sessions of all sources, in the order in which they wrote last.

    The source that wrote longest ago is forgotten where there are more than *sources_max*; if it
    then repeats a write, that takes effect again. Sources that begin with `JOB_PREFIX` are counted
    apart: a job can be repeated much later, and those who write a lot are not to make it forgotten.
    """

    def __init__(self, sources_max: int = SOURCES_MAX, jobs_max: int = JOBS_MAX) -> None:
        self._sources_max = sources_max
        self._jobs_max = jobs_max
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._jobs: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions) + len(self._jobs)

    def get(self, source: str) -> Session | None:
        """The session of *source*, if it is known."""
        return self._sessions.get(source) or self._jobs.get(source)

    def update(self, sessions: Mapping[str, Session]) -> None:
        """*sessions* have written, in that order."""
        for source, session in sessions.items():
            rows = self._jobs if source.startswith(JOB_PREFIX) else self._sessions
            rows[source] = session
            rows.move_to_end(source)
        while len(self._sessions) > self._sources_max:
            self._sessions.popitem(last=False)
        while len(self._jobs) > self._jobs_max:
            self._jobs.popitem(last=False)

    def replace(self, rows: Iterable[tuple[str, Session]]) -> None:
        """Forget all, and know *rows*, of which the first wrote longest ago."""
        self._sessions.clear()
        self._jobs.clear()
        self.update(dict(rows))

    def rows(self) -> tuple[tuple[str, Session], ...]:
        """All of them; of the jobs, and of the others, the one that wrote longest ago is first."""
        return (*self._jobs.items(), *self._sessions.items())
