"""The version of this package."""

from __future__ import annotations


def package_version() -> str:
    """Return the version of this package; ``0+unknown`` in a checkout that was not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - 1.4 MB a node

    try:
        return version("ringpop_py")
    except PackageNotFoundError:
        return "0+unknown"


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return package_version()
