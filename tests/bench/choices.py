"""Kinds of arguments of benchmarks: what is wrong is said before anything is started."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


def some_of(names: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """A kind of argument: some of *names*, with commas between them, in the order of *names*."""

    def parse(text: str) -> tuple[str, ...]:
        wanted = text.split(",") if text not in ("", "none") else []
        unknown = [name for name in wanted if name not in names]
        if unknown:
            message = f"no {', '.join(unknown)}; there are: {', '.join(names)}"
            raise argparse.ArgumentTypeError(message)
        return tuple(name for name in names if name in wanted)

    return parse


def a_file(text: str) -> Path:
    """A file that can be read."""
    try:
        with Path(text).open("rb"):
            return Path(text)
    except OSError as error:
        message = f"{text}: {error.strerror}"
        raise argparse.ArgumentTypeError(message) from None


def a_folder(text: str) -> Path:
    """A folder that there is."""
    if not Path(text).is_dir():
        message = f"{text}: no such folder"
        raise argparse.ArgumentTypeError(message)
    return Path(text)
