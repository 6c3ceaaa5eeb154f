"""Public names of a package that are loaded when they are first used.

A Spark worker that only looks up keys loads neither trio nor the daemon. Type checkers read
imports under ``TYPE_CHECKING`` instead.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazily(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of *package*.

    Args:
        names: the public names of each module below ``ringpop_py``, separated by spaces. A name
            cannot be that of a module of *package*, which would hide it once loaded.
    """
    homes = {name: module for module, some in names.items() for name in some.split()}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"ringpop_py.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, list_names, sorted(homes)
