"""What is recorded of `samples`: their bytes, and what becomes of malformed ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.golden.malformed import TEXTS, malformed
from tests.golden.samples import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.golden.samples import Kind

BYTES: Final = Path(__file__).parent / "bytes.txt"
"""A line a sample: its kind, its name, and its bytes in hexadecimal digits."""
VERDICTS: Final = Path(__file__).parent / "verdicts.txt"
"""A line a value in the last sample of a kind: the kind, where the value is, what almost all
others in its place are refused with, and those with which it is otherwise: ``same`` if the message
read is equal to the sample, ``read`` if it is another one, or the class of another error."""


def bytes_now() -> dict[str, str]:
    """What `BYTES` would say of this code, by kind and sample."""
    return {
        f"{name} {sample}": kind.encode(value).hex()
        for name, kind in KINDS.items()
        for sample, value in kind.samples.items()
    }


def verdicts_now(name: str, body: bytes) -> dict[str, str]:
    """What `VERDICTS` would say of this code, of a kind whose last sample has those bytes."""
    kind = KINDS[name]
    sound = repr(list(kind.samples.values())[-1])
    found: dict[str, dict[str, list[str]]] = {}
    for place, change, payload in malformed(kind.strip(body), kind.scheme):
        verdict = _verdict(kind, kind.dress(payload), sound)
        found.setdefault(place, {}).setdefault(verdict, []).append(change)
    usual = kind.refusal.__name__
    return {
        f"{name} {place.replace(' ', '_')}": "; ".join(
            [usual, *(f"{v}: {_in_short(c)}" for v, c in sorted(changes.items()) if v != usual)]
        )
        for place, changes in found.items()
    }


def _in_short(changes: list[str]) -> str:
    """*changes* in one line, where texts of ever greater lengths are told by the first and last."""
    texts = [change for change in changes if change in TEXTS]
    others = [change for change in changes if change not in TEXTS]
    first = TEXTS.index(texts[0]) if texts else 0
    if len(texts) > 1 and texts == TEXTS[first : first + len(texts)]:
        texts = [f"{texts[0]}..{texts[-1]}"]
    return " ".join(others + texts)


def _verdict(kind: Kind, body: bytes, sound: str) -> str:
    try:
        return "same" if repr(kind.decode(body)) == sound else "read"
    except Exception as error:  # noqa: BLE001 - which one is what is asked
        return type(error).__name__


def recorded(file: Path) -> dict[str, str]:
    """What *file* says, by the first two words of its lines."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    words = (line.split(" ", 2) for line in lines)
    return {f"{kind} {place}": said for kind, place, said in words}


def all_now() -> dict[Path, Callable[[], dict[str, str]]]:
    """What each file would say of this code."""

    def all_verdicts() -> dict[str, str]:
        found: dict[str, str] = {}
        for name, kind in KINDS.items():
            if kind.scheme:
                found |= verdicts_now(name, kind.encode(list(kind.samples.values())[-1]))
        return found

    return {BYTES: bytes_now, VERDICTS: all_verdicts}
