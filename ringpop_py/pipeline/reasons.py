"""Why Spark failed, in one line: its errors contain stack traces of three languages."""

from __future__ import annotations

import re
from typing import Final

from ringpop_py.errors import RingpopError

REASON_CHARACTERS_MAX: Final = 600
_OURS: Final = re.compile(r"^(?:\w+: )*ringpop_py\.errors\.(\w+): (.+)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)
_CALLED: Final = "An error occurred while calling "
_JAVA: Final = re.compile(r"^\s*(?:at |\.\.\. \d+ more|Traceback |File )")


def reason_of(error: BaseException) -> str:
    """Return the root cause of *error*, as far as its text names one."""
    if isinstance(error, RingpopError):
        return str(error)
    text = str(error)
    # Spark prints causes after effects, so the last match is the root cause.
    for pattern in (_OURS, _PYTHON):
        found = pattern.findall(text)
        if found and "Traceback" in text:
            kind, reason = found[-1]
            return _shortened(f"{kind.rpartition('.')[2]}: {reason}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not _JAVA.match(line)]
    if len(said) > 1 and said[0].startswith(_CALLED):  # py4j's own line; Java's error follows
        said = [said[1].removeprefix(": ")]
    return _shortened(said[0] if said else type(error).__name__)


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[: REASON_CHARACTERS_MAX - 1]}…"
