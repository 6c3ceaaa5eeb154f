"""Copies of the source with a bug in them, to be run in processes of their own."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def planted(package: Path, path: str, patches: Iterable[tuple[str, str]], folder: Path) -> Path:
    """A copy of *package* in *folder*, with *patches* of its module *path*; the folder.

    Raises:
        AssertionError: if an old text does not occur exactly once: the source has moved on.
    """
    # With the times of the files, so that what is compiled of them is good for the copy as well.
    shutil.copytree(package, folder / package.name)
    module = folder / package.name / path
    text = module.read_text(encoding="utf-8")
    for old, new in patches:
        assert text.count(old) == 1, f"{path} has it {text.count(old)} times: {old!r}"
        text = text.replace(old, new)
    module.write_text(text, encoding="utf-8")
    return folder
