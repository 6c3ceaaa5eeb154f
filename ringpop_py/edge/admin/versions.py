"""``/admin/versions``: what this process runs on, for bug reports."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

from ringpop_py.base.version import package_version

if TYPE_CHECKING:
    from ringpop_py.node.ringpop import Ringpop


def versions(ringpop: Ringpop, _value: object) -> object:
    """Return the versions of Python, of the system, and of packages."""
    return {"source": ringpop.name, **versions_here()}


def versions_here() -> dict[str, object]:
    """Return them; of packages those that this one may use. It reads files for about 0.1 s."""
    packages: dict[str, str] = {}
    with suppress(PackageNotFoundError):  # a checkout that was not installed
        for requirement in sorted(requires("ringpop_py") or ()):
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            with suppress(PackageNotFoundError):
                packages[name] = version(name)
    return {
        "ringpop_py": package_version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "packages": packages,
    }
