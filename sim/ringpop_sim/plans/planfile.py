"""Plans as TOML text, to be stored, replayed, shrunk and shown.

The text uses the names of the dataclasses in `ringpop_sim.plans.plan`, because it is read and
written field by field. Two things differ: a field ``x_us`` is ``x_s`` in the text, in seconds and
exact to the microsecond; and each operation is a table ``[[do]]`` with its ``kind``. A field with
its default value is not written.
"""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ringpop_sim.errors import PlanError
from ringpop_sim.plans.plan import OPERATIONS, Operation, Plan
from ringpop_sim.units import s

FILE_BYTES_MAX: Final = 4 << 20
OPERATIONS_MAX: Final = 100_000
CASE: Final = "case"
"""The table of a case (see `ringpop_sim.runs.cases`), which is ignored when a plan is read."""

_Table = dict[str, Any]
_T = TypeVar("_T")


# Reading.


def read_plan(path: str | Path) -> Plan:
    """Read the plan in the file at *path*.

    Raises:
        PlanError: the file has no valid plan; the message names the file and what is wrong.
    """
    return plan_of(table_of(read_text(path), str(path)), str(path))


def parse_plan(text: str, origin: str = "plan") -> Plan:
    """Return the plan in *text*; *origin* names the text in messages. Raises PlanError."""
    return plan_of(table_of(text, origin), origin)


def read_text(path: str | Path) -> str:
    """Return the text of the file at *path*. Raises PlanError."""
    try:
        with Path(path).open("rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)  # one more, to see that there is more
        if len(body) > FILE_BYTES_MAX:
            raise PlanError(f"{path}: a plan must have {FILE_BYTES_MAX >> 20} MiB at most")
        return body.decode("utf-8")
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: this is not text in UTF-8") from None


def table_of(text: str, origin: str) -> _Table:
    """Parse *text* as TOML, with fractions as decimals so that instants are exact.

    Raises:
        PlanError: *text* is not TOML.
    """
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, ArithmeticError) as error:
        raise PlanError(f"{origin}: this is not TOML: {error}") from None
    except RecursionError:
        raise PlanError(f"{origin}: this is not TOML: it is nested too deeply") from None


def plan_of(table: _Table, origin: str) -> Plan:
    """Return the plan in *table*. Raises PlanError."""
    rest = {key: value for key, value in table.items() if key != CASE}
    done = rest.pop("do", [])
    if not isinstance(done, list):
        raise PlanError(f"{origin}: operations must be tables, each under [[do]]")
    if len(done) > OPERATIONS_MAX:
        raise PlanError(f"{origin}: a plan must have {OPERATIONS_MAX} operations at most")
    operations = tuple(
        _operation(item, f"{origin}: operation {number}") for number, item in enumerate(done)
    )
    return _made(Plan, rest, origin, operations=operations)


def _operation(table: object, where: str) -> Operation:
    kinds = f"one of {', '.join(OPERATIONS)}"
    if not isinstance(table, dict):
        raise PlanError(f"{where}: must be a table under [[do]], not {table!r}")
    rest = dict(table)
    name = rest.pop("kind", None)
    if name is None:
        raise PlanError(f"{where}: kind is missing; it must be {kinds}")
    kind = OPERATIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise PlanError(f"{where}: kind must be {kinds}, not {name!r}")
    return _made(kind, rest, f"{where} ({name})")


def _made(kind: type[_T], table: _Table, where: str, **given: object) -> _T:
    """Return a *kind* with the fields in *table* and those *given*."""
    hints = get_type_hints(kind)
    by_key = {_key(f.name): f for f in fields(kind) if f.name not in given}  # type: ignore[arg-type]
    for key in table:
        if key not in by_key:
            raise PlanError(f"{where}: there is no {key!r} here; there is {', '.join(by_key)}")
    for key, field in by_key.items():
        if key in table:
            given[field.name] = _value(table[key], hints[field.name], field, f"{where}: {key}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise PlanError(f"{where}: {key} is missing")
    try:
        return kind(**given)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None


def _key(name: str) -> str:
    return f"{name.removesuffix('_us')}_s" if name.endswith("_us") else name


def _value(value: object, hint: Any, field: Field[Any], where: str) -> Any:  # noqa: ANN401
    """Return *value* as a field of the type *hint* has it."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = [option for option in get_args(hint) if option is not NoneType]
    if field.name == "settings":
        return _settings(value, where)
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise PlanError(f"{where}: must be a table, not {value!r}")
        return _made(hint, value, where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise PlanError(f"{where}: must be a list, not {value!r}")
        inner = get_args(hint)[0]
        return tuple(_scalar(item, inner, field, where) for item in value)
    return _scalar(value, hint, field, where)


def _scalar(value: object, hint: Any, field: Field[Any], where: str) -> Any:  # noqa: ANN401
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        if value not in allowed:
            raise PlanError(f"{where}: must be {' or '.join(map(repr, allowed))}, not {value!r}")
        return value
    if field.name.endswith("_us"):
        return _microseconds(value, where)
    if hint is float:
        return _number(value, where)
    if type(value) is not hint:  # `isinstance` would take true for a whole number
        what = {int: "a whole number", bool: "true or false", str: "text"}[hint]
        raise PlanError(f"{where}: must be {what}, not {_shown(value)}")
    return value


def _microseconds(value: object, where: str) -> int:
    if type(value) is int:
        return value * s
    # The size first: `int` of 1e999999 would have a million digits.
    if isinstance(value, Decimal) and value.is_finite() and -s * s < value < s * s:
        exact = value * s
        if exact == int(exact):
            return int(exact)
    raise PlanError(
        f"{where}: must be a number of seconds, exact to the microsecond, not {_shown(value)}"
    )


def _number(value: object, where: str) -> float:
    if (type(value) is int and abs(value) < s * s) or (
        isinstance(value, Decimal) and value.is_finite()
    ):
        return float(value)
    raise PlanError(f"{where}: must be a number, not {_shown(value)}")


def _settings(value: object, where: str) -> tuple[tuple[str, float | int | bool], ...]:
    if not isinstance(value, dict):
        raise PlanError(f"{where}: must be a table, not {value!r}")
    return tuple(
        (name, float(item) if isinstance(item, Decimal) else item) for name, item in value.items()
    )


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


# Writing.


def plan_text(plan: Plan) -> str:
    """Return *plan* as TOML, from which `parse_plan` makes an equal plan."""
    head, tables = _lines(plan, skip=("operations",))
    parts = ["\n".join(head)] if head else []
    parts += [f"[{name}]\n" + "\n".join(lines) for name, lines in tables]
    for operation in plan.operations:
        lines, _ = _lines(operation)
        parts.append("\n".join(["[[do]]", f"kind = {_text(operation.kind)}", *lines]))
    return "\n\n".join(parts) + "\n"


def _lines(
    value: object, skip: tuple[str, ...] = ()
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the fields of *value* that differ from the defaults, as lines and later tables."""
    lines: list[str] = []
    tables: list[tuple[str, list[str]]] = []
    for field in fields(value):  # type: ignore[arg-type]
        item = getattr(value, field.name)
        if field.name in skip or (field.default is not MISSING and item == field.default):
            continue
        key = _key(field.name)
        if field.name == "settings":
            tables.append((key, [f"{name} = {_text(number)}" for name, number in item]))
        elif not is_dataclass(item):
            lines.append(f"{key} = {_text(item, in_us=field.name.endswith('_us'))}")
        elif field.name == "delay":
            inner, _ = _lines(item)
            lines.append(f"{key} = {{ {', '.join(inner)} }}")
        else:
            inner, _ = _lines(item)
            tables.append((key, inner))
    return lines, tables


def _text(value: object, *, in_us: bool = False) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_text(item, in_us=in_us) for item in value)}]"
    # Before numbers: `repr` would write True, which is not TOML.
    if isinstance(value, bool):
        return "true" if value else "false"
    if in_us:
        assert isinstance(value, int)
        return _seconds_text(value)
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)


def _seconds_text(instant_us: int) -> str:
    """Return *instant_us* in seconds, with no more digits than needed, and without rounding."""
    whole, part = divmod(abs(instant_us), s)
    sign = "-" if instant_us < 0 else ""
    return f"{sign}{whole}.{part:06d}".rstrip("0").rstrip(".") if part else f"{sign}{whole}"


def _quoted(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\"}
    return (
        '"'
        + "".join(escapes.get(c) or (c if c.isprintable() else f"\\U{ord(c):08X}") for c in text)
        + '"'
    )


def replay_command(plan: Plan, seed: int) -> str:
    """Return one shell command that runs *plan* with *seed* anywhere, because it has the plan."""
    return f"bin/ringpop-sim run - --seed {seed} <<'END'\n{plan_text(plan)}END"


def file_command(verb: str, path: str, seed: int | None = None) -> str:
    """Return the command that does *verb* with the plan or case at *path*."""
    seed_option = "" if seed is None else f" --seed {seed}"
    return f"bin/ringpop-sim {verb} {shlex.quote(path)}{seed_option}"
