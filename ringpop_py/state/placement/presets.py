"""Keyspaces like those of three published designs, under the names and defaults of their documents.

- ``ripple``: 128 partitions on a ring of 128 points a member, at most 2,000 keys in each.
- ``fixed``: Fixed Partitions. They are dealt out in turn once there are enough members. Nothing
  moves to new members before an operator rebalances.
- ``volley``: 256 key groups in contiguous ranges.

A parameter may be written as in its document, in any case, with or without underscores:
``noOfPartitions`` is ``no_of_partitions``.

```
ripple = keyspace_preset("ripple", total_partitions=64)
config = Config(..., gossip=ripple.gossip(PRESETS["lan"]))
...
await ringpop.open_keyspace("symbols", **ripple.settings)
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from ringpop_py.base.errors import ConfigError
from ringpop_py.state.placement.definition import VIRTUAL_NODES, Definition, Settings

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import GossipConfig

_LONG: Final = 1_000_000_000
Number = float | int | None
"""A parameter's value; None for no limit, or for the default."""


@dataclass(frozen=True, slots=True)
class KeyspacePreset:
    """Settings that belong together.

    Attributes:
        settings: keyword arguments for `Ringpop.open_keyspace`.
        dead_after_s: how long a member may be silent before it is declared faulty; None for the
            default. It is not a setting of a keyspace, but of all nodes: see `gossip`.
    """

    settings: Settings
    dead_after_s: float | None = None

    def gossip(self, base: GossipConfig) -> GossipConfig:
        """Return *base*, changed so that a silent member is faulty after `dead_after_s`, if set.

        Raises:
            ConfigError: if the time is shorter than a probe.
        """
        return base if self.dead_after_s is None else base.dead_after(self.dead_after_s)


def keyspace_preset(name: str, **parameters: Number) -> KeyspacePreset:
    """Return the preset *name* with these *parameters*, named as in its document.

    Raises:
        ConfigError: if there is no such preset or parameter, or a value cannot be used.
    """
    design = KEYSPACE_PRESETS.get(name)
    if design is None:
        raise ConfigError(f"no preset is called {name!r}; there are {', '.join(KEYSPACE_PRESETS)}")
    found = _parameters(name, design.parameters, parameters)
    dead_after_s = None
    for time, count_a_second in _TIMES_A_SECOND.items():
        value = found.pop(time, None)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value < _LONG:
            raise ConfigError(f"{time} is a number above 0 and below {_LONG}, not {value!r}")
        dead_after_s = value / count_a_second
    changed: dict[str, Any] = {design.parameters[key][0]: found[key] for key in found}
    settings = cast(Settings, design.settings | changed)
    Definition(name="preset", **settings)  # checks the values
    return KeyspacePreset(settings, dead_after_s)


class Design(NamedTuple):
    """A preset, in the words of its document.

    Attributes:
        settings: those that no parameter changes.
        parameters: the setting behind each parameter, empty if there is none, and its default.
    """

    settings: dict[str, Any]
    parameters: dict[str, tuple[str, Number]]


KEYSPACE_PRESETS: Final[dict[str, Design]] = {
    "ripple": Design(
        {"strategy": "ring"},
        {
            "total_partitions": ("partitions", 128),
            "heartbeat_timeout_sec": ("", 30),
            "checkpoint_interval_sec": ("checkpoint_interval_s", 10),
            "virtual_nodes": ("virtual_nodes", VIRTUAL_NODES),
            "max_keys_per_partition": ("max_keys_per_partition", 2_000),
        },
    ),
    "fixed": Design(
        {"strategy": "average", "automatic": False},  # at first dealt out in turn
        {
            "no_of_partitions": ("partitions", 9),  # as in the document's example
            "minimum_cluster_size": ("min_cluster_size", 3),
            "timeout_millis": ("", None),  # the document has none: the gossip's own counts
        },
    ),
    "volley": Design(
        {"strategy": "range"},
        {"max_key_groups": ("partitions", 256), "num_workers": ("min_cluster_size", 1)},
    ),
}

_TIMES_A_SECOND: Final = {"heartbeat_timeout_sec": 1, "timeout_millis": 1_000}
"""The parameters that become `KeyspacePreset.dead_after_s`, with their units per second."""


def _parameters(
    preset: str, known: dict[str, tuple[str, Number]], given: dict[str, Number]
) -> dict[str, Any]:
    names = {_plain(name): name for name in known}
    # Ripple's text says heartbeat_timeout, its table heartbeat_timeout_sec: accept both.
    names |= {plain.removesuffix("sec"): name for plain, name in names.items()}
    found: dict[str, Any] = {}
    for written, value in given.items():
        name = names.get(_plain(written))
        if name is None:
            raise ConfigError(f"{preset} has no parameter {written!r}; it has {', '.join(known)}")
        if name in found:
            raise ConfigError(f"{preset} has {name} twice, the second time as {written!r}")
        found[name] = value
    return {name: default for name, (_, default) in known.items()} | found


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
