"""Trees of the source with a bug in them, to be run in processes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NO_PANDAS: Final = "raise ImportError('pyarrow would load it, in a third of a second')"


def planted(package: Path, path: str, patches: Iterable[tuple[str, str]], folder: Path) -> Path:
    """A tree of *package* in *folder*, with *patches* of its module *path*; the folder.

    It has links to the source, except on the way to that module. So whoever runs it must not write
    byte code, which would land beside the source.

    Raises:
        AssertionError: if an old text does not occur exactly once: the source has moved on.
    """
    text = (package / path).read_text(encoding="utf-8")
    for old, new in patches:
        assert text.count(old) == 1, f"{path} has it {text.count(old)} times: {old!r}"
        text = text.replace(old, new)
    source, tree = package, folder / package.name
    *way, module = path.split("/")
    for part in (*way, module):
        tree.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name not in {part, "__pycache__"}:
                (tree / entry.name).symlink_to(entry)
        source, tree = source / part, tree / part
    tree.write_text(text, encoding="utf-8")
    (folder / "pandas.py").write_text(NO_PANDAS, encoding="utf-8")
    return folder
