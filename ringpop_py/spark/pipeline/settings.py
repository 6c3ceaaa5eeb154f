"""The settings of a pipeline, from its file: checked as far as possible without Spark."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringpop_py.base.address import Address
from ringpop_py.base.config.document import Document, TomlTable, read_document
from ringpop_py.base.errors import ConfigError
from ringpop_py.base.rules import SWITCH, seconds_above_0, whole
from ringpop_py.spark.options import (
    LOCAL_DAEMON,
    ON_NULL_KEY,
    OPTIONS,
    option_problem,
    peers_in_file,
    quoted,
    write_options,
)
from ringpop_py.state.placement.definition import Definition, Settings
from ringpop_py.state.table.aggregations import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ringpop_py.spark.options import Target

PEER_VARIABLE: Final = "RINGPOP_PEER"
SAMPLE_ROWS: Final = 100_000
EVERY_S: Final = 1.0
AVAILABLE_NOW: Final = "available now"
"""The trigger of a stream that ends when it has processed everything that is there."""

_DURATION: Final = re.compile(r"\d+ (millisecond|second|minute|hour)s?")
SETTINGS: Final = tuple(name for name in Settings.__annotations__ if name not in ("mode", "merge"))
"""The settings of a keyspace that a file may have. The keyspace is a durable one."""
KNOWN: Final[Mapping[str, Mapping[str, bool]]] = {
    "": {
        **dict.fromkeys(("name", "peers", "hosts", "key", "on_null_key"), True),
        **dict.fromkeys(("value", "operation", "job"), True),
        **dict.fromkeys(("columns", "source", "keyspace", "stream"), False),
        **dict.fromkeys(("options", "spark", "report", "combine"), False),
    },
    "source": {
        **dict.fromkeys(("format", "path", "table", "schema", "sql"), True),
        "options": False,
    },
    "keyspace": {**dict.fromkeys(("create", *SETTINGS), False), "name": True, "strategy": True},
    "stream": {"checkpoint": True, "trigger": True},
    "spark": {"master": True, "conf": False},
    "report": {"every_s": False, "sample_rows": False},
}
"""The names in each table, by its path, and whether the value of a name is a text."""
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
"""Options of the data source, in lower case, and the setting that replaces each in a pipeline."""


@dataclass(frozen=True, slots=True)
class Source:
    """What to read: one *format*, or a *table* of Spark's catalog; *sql* sees it as ``source``."""

    format: str | None
    path: tuple[str, ...]
    table: str | None
    schema: str | None
    options: Mapping[str, str]
    sql: str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One entry of a key's map: *value* is a SQL expression; *aggregation* combines the rows."""

    name: str
    value: str
    aggregation: str


@dataclass(frozen=True, slots=True)
class KeyspaceSettings:
    """The keyspace to write to: if it does not exist, it is made with *settings*, if *create*."""

    name: str
    create: bool
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings of a stream: *trigger* is `AVAILABLE_NOW`, or the time between batches."""

    checkpoint: str
    trigger: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A job. Each key of the keyspace gets one *value*, or a map of *columns*.

    Attributes:
        value: a SQL expression; None for a map of *columns* or, without any, of all but the key.
        operation: how *value*, or the map, is written.
        columns: the entries of the map; either all are "put", or none is.
        job: the name under which the rows of a batch are applied once; None for a new name.
        combine: whether Spark combines the rows of a batch first, if it can.
        options: options of the data source, by their names there.
    """

    name: str
    peers: tuple[str, ...]
    key: str
    on_null_key: str
    value: str | None
    operation: str
    columns: tuple[Column, ...]
    source: Source
    keyspace: KeyspaceSettings
    stream: StreamSettings | None
    job: str | None
    options: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    every_s: float = EVERY_S
    sample_rows: int = SAMPLE_ROWS
    combine: bool = True

    @property
    def aggregates(self) -> bool:
        """Whether columns have their own aggregations."""
        return any(column.aggregation != "put" for column in self.columns)

    def sink_options(self) -> dict[str, str]:
        """Return the options for the data source."""
        operation = self.operation
        if self.aggregates:
            operations = (f"{quoted(column.name)}={column.aggregation}" for column in self.columns)
            operation = ",".join(operations)
        options = {
            **self.options,
            "keyspace": self.keyspace.name,
            "key": self.key,
            "peers": ",".join(self.peers),
            "onNullKey": self.on_null_key,
            "operation": operation,
        }
        if self.value is not None and self.operation != "count":
            options["value"] = VALUE_COLUMN
        if self.job is not None:
            options["job"] = self.job
        return options

    @property
    def target(self) -> Target:
        """Where the data source writes, and how it gets there."""
        return write_options(self.sink_options(), streaming=self.stream is not None).target


VALUE_COLUMN: Final = "value"
"""The name of the column into which `Pipeline.value` is computed."""


def load_pipeline(
    path: str, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Pipeline:
    """Return the pipeline in the file at *path*.

    Args:
        overrides: texts ``key=value``, as in TOML: ``keyspace.partitions=64``.
        environment: provides ``${NAME}`` in texts, and the daemon if the file names none; by
            default the environment of this process.

    Raises:
        ConfigError: with a line for each mistake.
    """
    environment = os.environ if environment is None else environment
    try:
        document = read_document(path, overrides, environment, takes_text=takes_text)
        return pipeline_of(document, Path(path).stem, environment.get(PEER_VARIABLE))
    except ConfigError as error:
        message = "\n".join(f"{path}: {line}" for line in str(error).splitlines())
        raise ConfigError(message) from None


def pipeline_of(document: Document, name: str, peer: str | None = None) -> Pipeline:
    """Return the pipeline in *document*; *name* and *peer* are defaults. Raises ConfigError."""
    problems: list[str] = []
    top = TomlTable(document, "", problems)
    top.check_names(KNOWN)
    tables = {name: top.table(name) for name in KNOWN if name in document}
    for table in tables.values():
        table.check_names(KNOWN)
    source, keyspace, spark, report = (
        tables.get(name, top.table(name)) for name in ("source", "keyspace", "spark", "report")
    )
    stream = _stream(top)
    columns = _columns(top)
    value, operation = _value(top, columns)
    pipeline = Pipeline(
        name=top.text("name") or name,
        peers=_peers(top, peer or LOCAL_DAEMON),
        key=_needed(top, "key", "the column whose text is the key") or "key",
        on_null_key=top.choice("on_null_key", ON_NULL_KEY, "fail"),
        value=value,
        operation=operation,
        columns=columns,
        source=_source(top, source),
        keyspace=_keyspace(keyspace),
        stream=stream,
        job=_job(top, stream),
        options=_options(top, stream),
        master=spark.text("master"),
        conf=spark.options("conf"),
        every_s=float(report.ruled("every_s", seconds_above_0(), EVERY_S)),
        sample_rows=report.ruled("sample_rows", whole(1), SAMPLE_ROWS),
        combine=top.ruled("combine", SWITCH, default=True),
    )
    if any(column.name == pipeline.key for column in columns):
        top.problem(f"columns.{pipeline.key}", "is the key already")
    if value is not None and pipeline.key == VALUE_COLUMN:
        top.problem("key", f"a key column {VALUE_COLUMN!r} and a value: rename it in source.sql")
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    # Each option is in order; this checks those that depend on each other.
    write_options(pipeline.sink_options(), streaming=stream is not None)
    return pipeline


# Parts.


def _needed(table: TomlTable, name: str, what: str) -> str | None:
    found = table.text(name)
    if name not in table:
        table.problem(name, f"is missing: {what}")
    return found


def _peers(top: TomlTable, peer: str) -> tuple[str, ...]:
    hosts = top.text("hosts")
    listed = top.texts("peers")
    if hosts is not None and listed:
        top.problem("hosts", "peers and hosts both list daemons: give only one")
    try:
        if hosts is not None:
            return peers_in_file(hosts)
        return tuple(str(Address.parse(text)) for text in listed or (peer,))
    except ConfigError as error:
        top.problem("hosts" if hosts is not None else "peers", str(error))
        return (LOCAL_DAEMON,)


def _source(top: TomlTable, source: TomlTable) -> Source:
    form, table = source.text("format"), source.text("table")
    if "source" not in top:
        top.problem("source", "is missing: a [source] with a format, or with a table")
    elif (form is None) is (table is None):
        source.problem("format", "give either format or table (of Spark's catalog)")
    path = source.texts("path")
    if table is not None and path:
        source.problem("path", "a table has no path: leave it out")
    return Source(
        form, path, table, source.text("schema"), source.options("options"), source.text("sql")
    )


def _keyspace(table: TomlTable) -> KeyspaceSettings:
    name = _needed(table, "name", "the keyspace to write to") or "unnamed"
    settings = {setting: table.value(setting) for setting in SETTINGS if setting in table}
    with table.noting():
        Definition(name=name, **settings)
    return KeyspaceSettings(name, table.ruled("create", SWITCH, default=True), settings)


def _stream(top: TomlTable) -> StreamSettings | None:
    if "stream" not in top:
        return None
    stream = top.table("stream")
    checkpoint = _needed(stream, "checkpoint", "the folder where Spark keeps how far it is")
    trigger = stream.text("trigger") or AVAILABLE_NOW
    # Spark takes more forms of durations, but says only at the start which ones it refuses.
    if trigger != AVAILABLE_NOW and not _DURATION.fullmatch(trigger):
        stream.problem("trigger", f"is {AVAILABLE_NOW!r} or such as '10 seconds', not {trigger!r}")
    return StreamSettings(checkpoint or "", trigger)


def _job(top: TomlTable, stream: StreamSettings | None) -> str | None:
    job = top.text("job")
    if job is not None and stream is not None:
        top.problem("job", "a stream names its jobs itself, by query and batch; leave it out")
    elif job is not None:
        top.problem("job", option_problem("job", job, streaming=False))
    return job


def _columns(top: TomlTable) -> tuple[Column, ...]:
    given = top.value("columns")
    if given is None:
        return ()
    if isinstance(given, list):
        return tuple(Column(name, quoted(name), "put") for name in top.texts("columns"))
    if not isinstance(given, dict):
        top.problem("columns", "is a list of columns, or a table of aggregations by column")
        return ()
    table = top.table("columns")
    found = [_column(table, name, how) for name, how in given.items()]
    return tuple(column for column in found if column is not None)


def _column(table: TomlTable, name: str, how: object) -> Column | None:
    values = how if isinstance(how, dict) else {"by": how}
    value, by = values.get("value"), values.get("by", "put")
    for wrong in sorted(values.keys() - {"value", "by"}):
        table.problem(f"{name}.{wrong}", "unknown; there are by, value")
    if not isinstance(by, str) or not isinstance(value, str | None):
        table.problem(name, 'is an aggregation such as "add", or { value = "SQL", by = "add" }')
        return None
    _check_aggregation(table, name, by)
    # A count does not look at its value, so any will do; the column need not exist.
    return Column(name, value or ("1" if by == "count" else quoted(name)), by)


def _value(top: TomlTable, columns: Sequence[Column]) -> tuple[str | None, str]:
    value, operation = top.text("value"), top.text("operation")
    if value is not None and columns:
        top.problem("value", "value is all that a key has, and columns are a map: give one")
    if operation is not None and columns:
        top.problem("operation", "each of the columns has its own: leave operation out")
    if operation is not None:
        _check_aggregation(top, "operation", operation)
    return value, operation or "put"


def _check_aggregation(table: TomlTable, name: str, aggregation: str) -> None:
    if aggregation in BUILT_IN:
        return
    if not re.fullmatch(r"\w+", aggregation):
        table.problem(name, f"{aggregation!r} is not a name of an aggregation")
        return
    # An application may have aggregations of its own, which only its nodes know. But a name close
    # to a built-in one is a misspelling.
    close = get_close_matches(aggregation, list(BUILT_IN), 1, 0.75)
    if close:
        table.problem(name, f"there is no aggregation {aggregation!r}; did you mean {close[0]!r}?")


def _options(top: TomlTable, stream: StreamSettings | None) -> dict[str, str]:
    options = top.options("options")
    is_stream = stream is not None
    for name, text in options.items():
        top.problem(f"options.{name}", problem_of_option(name, text, streaming=is_stream))
    return options


def takes_text(path: Sequence[str]) -> bool:
    """Return whether the value at *path* is a text, so that a bare number or date is one, too."""
    match path:
        case (name,):
            return KNOWN[""].get(name, False)
        case (table, name):
            return KNOWN.get(table, {}).get(name, False)
        case ("columns", _, name):
            return name in ("value", "by")
        case _:
            return False


def problem_of_option(name: str, text: str, *, streaming: bool) -> str | None:
    """Return what is wrong with an option of the data source in a file; None if it is valid."""
    if name.lower() in _OURS:
        return f"is set by {_OURS[name.lower()]} here"
    known = {option.name.lower(): option for option in OPTIONS}
    if name.lower() not in known:
        theirs = [each for each in known if each not in _OURS and "write" in known[each].purposes]
        close = get_close_matches(name.lower(), theirs, 1)
        if close:
            return f"unknown; did you mean {known[close[0]].name}?"
    return option_problem(name, text, streaming=streaming)
