"""The names that a pipeline's file knows, what is a text, and options of the data source there."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from ringpop_py.spark.options import OPTIONS, option_problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SETTINGS: Final = (
    "partitions",
    "strategy",
    "automatic",
    "min_cluster_size",
    "max_keys_per_partition",
    "checkpoint_interval_s",
)
KNOWN: Final[Mapping[str, Sequence[str]]] = {
    "": (
        *("name", "peers", "hosts", "key", "on_null_key", "value", "operation", "job"),
        *("columns", "source", "keyspace", "stream", "options", "spark", "report"),
    ),
    "source": ("format", "path", "table", "schema", "options", "sql"),
    "keyspace": ("name", "create", *SETTINGS),
    "stream": ("checkpoint", "trigger"),
    "spark": ("master", "conf"),
    "report": ("every_s", "sample_rows"),
}
"""The names of each table, by its path."""

_TEXTS: Final[Mapping[str, Sequence[str]]] = {
    "": ("name", "peers", "hosts", "key", "on_null_key", "value", "operation", "job"),
    "source": ("format", "path", "table", "schema", "sql"),
    "keyspace": ("name", "strategy"),
    "stream": ("checkpoint", "trigger"),
    "spark": ("master",),
}
"""Those that are texts."""

_OURS: Final = {
    "keyspace": "keyspace.name",
    "table": "keyspace.name",
    "key": "key",
    "value": "value",
    "operation": "operation or [columns]",
    "peers": "peers",
    "bootstrapfile": "hosts",
    "onnullkey": "on_null_key",
    "createkeyspace": "keyspace.create",
    "partitions": "keyspace.partitions",
    "job": "job",
    "checkpointlocation": "stream.checkpoint",
}
"""Options of the data source that a pipeline says elsewhere."""


def takes_text(path: Sequence[str]) -> bool:
    """Whether what is named so is a text, so that a bare number or date is one as well."""
    match path:
        case (name,):
            return name in _TEXTS[""]
        case (table, name):
            return name in _TEXTS.get(table, ())
        case ("columns", _, name):
            return name in ("value", "by")
        case _:
            return False


def problem_of_option(name: str, text: str, *, streaming: bool) -> str | None:
    """What is wrong with an option of the data source in a pipeline's file."""
    if name.lower() in _OURS:
        return f"is said by {_OURS[name.lower()]} here"
    known = {option.name.lower(): option for option in OPTIONS}
    if name.lower() not in known:
        theirs = [each for each in known if each not in _OURS and "write" in known[each].purposes]
        close = get_close_matches(name.lower(), theirs, 1)
        if close:
            return f"unknown; did you mean {known[close[0]].name}?"
    return option_problem(name, text, streaming=streaming)
