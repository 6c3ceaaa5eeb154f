"""The options of the data source: names in camelCase, values as texts.

Spark passes options with their names in lower case, and adds some of its own. An unknown option is
refused with a list of the known ones: one that is misspelt, and silently ignored, costs an
afternoon.

Rules for this file: it loads neither pyspark nor pyarrow, so that a pipeline's file can be checked
on machines without them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, TypeVar, get_args

from ringpop_py.base.address import Address
from ringpop_py.base.config.settings import check_schedule
from ringpop_py.base.errors import BodyError, ConfigError
from ringpop_py.base.rules import SWITCH, Rule, one_of, seconds_above_0, whole
from ringpop_py.base.values.declared import Text, converter
from ringpop_py.base.values.packed import decode_value
from ringpop_py.member.discovery.hosts import listed_addresses
from ringpop_py.state.placement.definition import name_rule
from ringpop_py.state.placement.keys import PARTITIONS_MAX
from ringpop_py.state.table.due import EXPIRES_S_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Purpose = Literal["read", "write", "stream write"]
Distribution = Literal["owners", "daemon"]
OnNullKey = Literal["fail", "skip", "count"]
"""How a row without a key is handled: it fails the job, or is left out, uncounted or counted."""
ON_NULL_KEY: Final[tuple[OnNullKey, ...]] = get_args(OnNullKey)

LOCAL_DAEMON: Final = "127.0.0.1:3000"
FLUSH_ROWS: Final = 500_000
FLUSH_ROWS_MAX: Final = 50_000_000
FLUSH_BYTES: Final = 64 << 20
FLUSH_BYTES_MAX: Final = 1 << 30
IN_FLIGHT: Final = 4
IN_FLIGHT_MAX: Final = 64
TIMEOUT_S: Final = 30.0
TIMEOUT_S_MAX: Final = 3_600.0
MAX_RETRIES: Final = 3
SCHEDULE_S: Final[tuple[float, ...]] = (0.0, 1.0, 5.0)
"""Seconds before each retry of a call. Within one call, lost messages are sent again to other
daemons; retries are for longer failures, such as an unreachable store."""
KEYS_MAX: Final = 1_000_000
JOB: Final = name_rule(len("~999"))
"""The rule for the name of a job: it has room for the longest suffix of a successor's."""

T = TypeVar("T")


class Option(NamedTuple):
    """One option. *text* describes it in messages, with its default in parentheses."""

    name: str
    purposes: tuple[Purpose, ...]
    text: str


_ALL: Final[tuple[Purpose, ...]] = get_args(Purpose)
_WRITE: Final[tuple[Purpose, ...]] = ("write", "stream write")

OPTIONS: Final = (
    Option("keyspace", _ALL, "the keyspace; required"),
    Option("table", _ALL, "another word for keyspace"),
    Option("key", _ALL, "the column of keys: string, integer or binary (key)"),
    Option("value", _ALL, "the one column that is the value (a map of all other columns)"),
    Option("peers", _ALL, f"daemons to begin with, host:port,… ({LOCAL_DAEMON})"),
    Option("bootstrapFile", _ALL, "a file on the driver that lists them, instead of peers"),
    Option("clusterKeyFile", _ALL, "the cluster's keys, on each machine ($RINGPOP_CLUSTER_KEY)"),
    Option("distribution", _ALL, "owners: directly to them; daemon: through a peer (owners)"),
    Option("timeout", _ALL, f"seconds for a call, within which it is sent again ({TIMEOUT_S:g})"),
    Option("retrySchedule", _WRITE, "seconds before each retry; the last one is repeated (0,1,5)"),
    Option("maxRetries", _WRITE, f"retries of one call ({MAX_RETRIES})"),
    Option("operation", _WRITE, "put, an aggregation, or column=aggregation,… (put)"),
    Option("expiresIn", _WRITE, "seconds until these keys expire, for operation put (never)"),
    Option("expiresAtField", _WRITE, "a column that says when: timestamp, or long seconds (never)"),
    Option("onNullKey", _WRITE, "rows without a key: fail, skip or count (fail)"),
    Option("flushRows", _WRITE, f"rows a task gathers before it combines them ({FLUSH_ROWS})"),
    Option("flushBytes", _WRITE, f"bytes before it sends them ({FLUSH_BYTES >> 20}m)"),
    Option("maxInFlight", _WRITE, f"messages a task has under way ({IN_FLIGHT})"),
    Option("createKeyspace", _WRITE, "true: create it if it does not exist (false)"),
    Option("partitions", _WRITE, "of a keyspace that is created (256)"),
    Option("job", ("write",), "names these rows: written once under that name (a fresh one)"),
    Option("keys", ("read",), 'only these: a,b,c or, with commas in them, ["a,b", "c"] (all)'),
    Option("splits", ("read",), "how many Spark partitions to read it in (as suits)"),
    Option("stale", ("read",), "true: owners answer without confirming ownership (false)"),
)
_BY_LOWER: Final = {option.name.lower(): option for option in OPTIONS}
_LISTED: Final = "; there are:"
_TABLES_OWN: Final = "option."
CATALOG_ADVICE: Final = (
    "Spark does not pass such a table's options to sources in Python, so it can be neither read"
    " nor written: use CREATE TEMPORARY VIEW NAME USING ringpop OPTIONS (keyspace '…', key '…'),"
    " which SELECT and INSERT INTO take (drop the table with DROP TABLE)"
)
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})
_REASONS: Final = {
    "path": (
        "a keyspace has no path: set .option('keyspace', NAME), and call save() or load() without"
        " arguments"
    ),
    "onmoved": (
        "no row is sent back as moved: any daemon accepts a stage file, and the partition's owner"
        " after the commit applies it"
    ),
    "filterpushdown": "it does not exist here: use option('keys', …) or lookup()",
}
"""Options of other sources that do not exist here, and why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A keyspace, and how to reach it.

    Attributes:
        peers: daemons, in the order in which they are tried.
        direct: whether owners are called directly, and not through one of *peers*.
        timeout_s: the time limit of one call, with all its internal attempts.
        schedule_s: pauses before retries; the last one counts for all later retries.
        cluster_key: the file with the cluster's keys; None: as each process's environment says.
    """

    keyspace: str
    peers: tuple[str, ...]
    direct: bool = True
    timeout_s: float = TIMEOUT_S
    schedule_s: tuple[float, ...] = SCHEDULE_S
    max_retries: int = MAX_RETRIES
    cluster_key: str | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write, see `OPTIONS`; None is the default described there.

    Attributes:
        operation: the operation for the value as a whole; "fields" if there are *fields*.
        fields: aggregations by column.
        expires_in: seconds until keys expire, from when their rows are packed.
        expires_at: the column that says when; it is not part of the value.
        schema: what `ringpop_py.spark.typed.kept_schema` returns; empty if nothing is kept.
    """

    target: Target
    key: str
    value: str | None
    operation: str
    fields: Mapping[str, str]
    on_null_key: OnNullKey
    flush_rows: int
    flush_bytes: int
    in_flight: int
    job: str | None
    create: bool
    partitions: int | None
    schema: str = ""
    expires_in: float | None = None
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read, see `OPTIONS`; None is the default described there."""

    target: Target
    key: str
    value: str | None
    keys: tuple[str, ...] | None
    splits: int | None
    stale: bool


def write_options(given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Read the options of a write. Raises ConfigError."""
    options = _Given(given, "stream write" if streaming else "write")
    value = options.get("value", str, None)
    operation, fields = options.get("operation", _operation, _PUT)
    if fields and value is not None:
        _refuse("value names the column of arguments, and operation names columns: give only one")
    if operation == "count" and value is not None:
        _refuse("count takes no column: leave value out")
    expires_in = options.get("expiresIn", _word(seconds_above_0(EXPIRES_S_MAX)), None)
    expires_at = options.get("expiresAtField", str, None)
    if expires_in is not None and expires_at is not None:
        _refuse("expiresIn and expiresAtField exclude each other: give only one")
    if (expires_in is not None or expires_at is not None) and operation != "put":
        _refuse("expiresIn and expiresAtField are for operation put: other ones keep the instant")
    create = options.get("createKeyspace", _word(SWITCH), default=False)
    partitions = options.get("partitions", _word(whole(1, PARTITIONS_MAX)), None)
    if partitions is not None and not create:
        _refuse("partitions is for a keyspace that is created: set createKeyspace=true as well")
    return WriteOptions(
        target=_target(options),
        key=options.get("key", str, "key"),
        value=value,
        operation=operation,
        fields=fields,
        on_null_key=options.get("onNullKey", _word(one_of(ON_NULL_KEY)), "fail"),
        flush_rows=options.get("flushRows", _word(whole(1, FLUSH_ROWS_MAX)), FLUSH_ROWS),
        flush_bytes=options.get("flushBytes", _word(_BYTES), FLUSH_BYTES),
        in_flight=options.get("maxInFlight", _word(whole(1, IN_FLIGHT_MAX)), IN_FLIGHT),
        job=options.get("job", JOB.parsed, None),
        create=create,
        partitions=partitions,
        expires_in=expires_in,
        expires_at=expires_at,
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Read the options of a read. Raises ConfigError."""
    options = _Given(given, "read")
    return ReadOptions(
        target=_target(options),
        key=options.get("key", str, "key"),
        value=options.get("value", str, None),
        keys=options.get("keys", _keys, None),
        splits=options.get("splits", _word(whole(1, PARTITIONS_MAX)), None),
        stale=options.get("stale", _word(SWITCH), default=False),
    )


def option_problem(name: str, text: str, *, streaming: bool) -> str | None:
    """Return in one line what is wrong with this option of a write alone; None if it is valid."""
    try:
        write_options({"keyspace": "any", name: text}, streaming=streaming)
    except ConfigError as error:
        known = _BY_LOWER.get(name.lower())
        problem = str(error).partition(_LISTED)[0]
        return problem if known is None else problem.removeprefix(f"option {known.name} ")
    return None


def quoted(name: str) -> str:
    """Return the name of a column, quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


class _Given:
    """The given options for one purpose, all of which are known."""

    def __init__(self, given: Mapping[str, str], purpose: Purpose) -> None:
        self.values = {name.lower(): value for name, value in given.items()}
        # Spark passes these when a table of its catalog is made, and no options at all later.
        if "provider" in self.values and any(n.startswith(_TABLES_OWN) for n in self.values):
            _refuse(f"a keyspace is not a table of Spark's catalog: {CATALOG_ADVICE}")
        self._purpose = purpose
        for name in self.values:
            if name not in _SPARKS_OWN:
                self._check(name)

    def _check(self, name: str) -> None:
        option = _BY_LOWER.get(name)
        if name == "job" and self._purpose == "stream write":
            _refuse("a stream names its jobs itself, by query id and batch id; leave job out")
        if name in _REASONS:
            _refuse(f"there is no option {name!r}: {_REASONS[name]}")
        if option is None:
            problem = f"there is no option {name!r}"
        elif self._purpose not in option.purposes:
            problem = f"option {option.name} is not for a {self._purpose}"
        else:
            return
        known = [each for each in OPTIONS if self._purpose in each.purposes]
        _refuse("\n".join([f"{problem}{_LISTED}", *(f"  {o.name}: {o.text}" for o in known)]))

    def get(self, name: str, read: Callable[[str], T], default: T) -> T:
        """Return the option as converted by *read*, whose ValueError says what is expected."""
        text = self.values.get(name.lower())
        if text is None:
            return default
        if not text.strip():
            _refuse(f"option {name} is empty: give it a value, or leave it out")
        try:
            return read(text)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"option {name} is {error}, not {text[:80]!r}") from None

    def both(self, one: str, other: str) -> bool:
        """Return whether both options are given, with different values."""
        first, second = self.values.get(one.lower()), self.values.get(other.lower())
        return None not in (first, second) and first != second


def _target(options: _Given) -> Target:
    if options.both("keyspace", "table"):
        _refuse("keyspace and table mean the same, but name two keyspaces: give only one")
    if options.both("peers", "bootstrapFile"):
        _refuse("peers and bootstrapFile both list daemons: give only one")
    keyspace = options.get("keyspace", str, "") or options.get("table", str, "")
    if not keyspace:
        text = "name the keyspace: .option('keyspace', NAME)"
        if not options.values:
            text += f". If this is a table of Spark's catalog: {CATALOG_ADVICE}"
        _refuse(text)
    peers = options.get("bootstrapFile", peers_in_file, None) or options.get("peers", _peers, None)
    schedule_s = options.get("retrySchedule", _seconds, SCHEDULE_S)
    max_retries = options.get("maxRetries", _word(whole(0, 1_000)), MAX_RETRIES)
    check_schedule(max_retries, schedule_s)
    return Target(
        keyspace=keyspace,
        peers=peers or (LOCAL_DAEMON,),
        direct=options.get("distribution", _word(one_of(get_args(Distribution))), "owners")
        == "owners",
        timeout_s=options.get("timeout", _word(seconds_above_0(TIMEOUT_S_MAX)), TIMEOUT_S),
        schedule_s=schedule_s,
        max_retries=max_retries,
        cluster_key=options.get("clusterKeyFile", str, None),
    )


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message)


# Texts as values. A ValueError says what the text should be.


def _peers(text: str) -> tuple[str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(str(Address.parse(part, what="option peers:")) for part in parts)


def peers_in_file(path: str) -> tuple[str, ...]:
    """Return the daemons that the file at *path* lists. Raises ConfigError if there are none."""
    peers = tuple(str(address) for address in listed_addresses(path))
    if not peers:
        raise ConfigError(f"bootstrap file {path} lists no daemon")
    return peers


def _word(rule: Rule) -> Callable[[str], Any]:
    return lambda text: rule.parsed(text.strip().lower())


def _size(text: str) -> int:  # with units as Spark writes them: ``64m``
    found = re.fullmatch(r"([0-9]{1,18})\s*([kmg]?)b?", text)
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else -1


_BYTES: Final = Rule(
    f"a number of bytes from 1k to {FLUSH_BYTES_MAX >> 20}m",
    lambda count: 1 << 10 <= count <= FLUSH_BYTES_MAX,
    _size,
)


def _seconds(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.strip("[]() ").split(","))
    except ValueError:
        raise ValueError("a list of seconds such as 0,0.5,2") from None


_keys_in: Final = converter(tuple[Text, ...])


def _keys(text: str) -> tuple[str, ...]:
    found: Sequence[str] = text.split(",")
    if text.lstrip().startswith("["):
        try:
            found = _keys_in(decode_value("json", text.encode()))
        except BodyError:
            raise ValueError(
                'keys with commas between them, or an array in JSON such as ["a,b", "c"]'
            ) from None
    if not 0 < len(found) <= KEYS_MAX:
        raise ValueError(f"1 to {KEYS_MAX:,} keys")
    return tuple(dict.fromkeys(found))


_PUT: Final[tuple[str, dict[str, str]]] = ("put", {})
_FIELD: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^=,`]+?))\s*=\s*(\w+)\s*(?:,|$)")


def _operation(text: str) -> tuple[str, dict[str, str]]:
    # One operation, or an aggregation for each column, whose name may be in backticks.
    if re.fullmatch(r"\s*\w+\s*", text):
        return text.strip(), {}
    fields: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _FIELD.match(text, at)
        if found is None:
            raise ValueError("one aggregation, or column=aggregation,… (odd names in `backticks`)")
        column = found[1].replace("``", "`") if found[1] else found[2]
        if column in fields:
            raise ValueError(f"a list of columns, each once ({column!r} is there twice)")
        fields[column] = found[3]
        at = found.end()
    return "fields", fields
