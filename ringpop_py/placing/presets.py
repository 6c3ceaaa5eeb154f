"""Keyspaces like those of three designs, by the names and defaults that their documents have.

- ``ripple``: 128 partitions on a ring of 128 points a member, at most 2,000 keys in each.
- ``fixed``: Fixed Partitions. Dealt out in turn once enough members are there; nothing moves to new
  members before somebody rebalances.
- ``volley``: 256 key groups in contiguous ranges.

A parameter may be written as its document writes it, or in any other case, with underscores or
without: ``noOfPartitions`` is ``no_of_partitions``.

```
ripple = keyspace_preset("ripple", total_partitions=64)
config = Config(..., gossip=ripple.gossip(PRESETS["lan"]))
...
await ringpop.open_keyspace("symbols", **ripple.settings)
```
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - read at run time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from ringpop_py.errors import ConfigError
from ringpop_py.placing.definition import Definition, Settings
from ringpop_py.placing.strategies import RING_POINTS_COUNT

if TYPE_CHECKING:
    from ringpop_py.config.settings import GossipConfig

Number = float | int | None
"""None: no limit, or as it is."""


@dataclass(frozen=True, slots=True)
class KeyspacePreset:
    """Settings that belong together.

    Attributes:
        settings: for `Ringpop.open_keyspace`.
        dead_after_s: how long a member is silent before it is given up; None to leave that as it
            is. It is no setting of a keyspace, but of all nodes: see `gossip`.
    """

    settings: Settings
    dead_after_s: float | None = None

    def gossip(self, base: GossipConfig) -> GossipConfig:
        """*base* with the time after which the silent are given up, about.

        What a probe takes is part of it; the rest is for the suspect to refute. A process whose
        machine refuses connections for it is given up sooner, if *base* says so (``evidence``).

        Raises:
            ConfigError: that is shorter than a probe.
        """
        if self.dead_after_s is None:
            return base
        probe_s = base.period_s + base.ping_timeout_s + base.ping_req_timeout_s
        if self.dead_after_s <= probe_s:
            message = (
                f"a member cannot be given up after {self.dead_after_s:g} s of silence, since a"
                f" probe takes up to {probe_s:g} s with this configuration of the gossip"
            )
            raise ConfigError(message)
        # Others who accuse it, too, would shorten the time or, missing, make it longer.
        return replace(base, suspect_s=self.dead_after_s - probe_s, confirmations=False)


def keyspace_preset(name: str, **parameters: Number) -> KeyspacePreset:
    """The preset *name* with these *parameters*, named as its document names them.

    Raises:
        ConfigError: there is no such preset or parameter, or the value cannot be used.
    """
    make = KEYSPACE_PRESETS.get(name)
    if make is None:
        message = f"no preset is called {name!r}; there are {', '.join(KEYSPACE_PRESETS)}"
        raise ConfigError(message)
    return make(**parameters)


def ripple(**parameters: Number) -> KeyspacePreset:
    """Of a ring of workers.

    Args:
        parameters: total_partitions 128, heartbeat_timeout_sec 30, checkpoint_interval_sec 10,
            virtual_nodes 128, max_keys_per_partition 2000.

    Raises:
        ConfigError: as `keyspace_preset`; or *virtual_nodes* is another number: the members of a
            cluster have one ring, for all keyspaces.
    """
    found = _parameters("ripple", _RIPPLE, parameters)
    if found["virtual_nodes"] != RING_POINTS_COUNT:
        message = f"virtual_nodes is {RING_POINTS_COUNT} here, not {found['virtual_nodes']!r}"
        raise ConfigError(message)
    settings = _checked(
        strategy="ring",
        partitions=found["total_partitions"],
        checkpoint_interval_s=found["checkpoint_interval_sec"],
        max_keys_per_partition=found["max_keys_per_partition"],
    )
    return KeyspacePreset(settings, _number("heartbeat_timeout_sec", found))


def fixed(**parameters: Number) -> KeyspacePreset:
    """Of partitions that an administrator moves.

    Args:
        parameters: no_of_partitions 9, minimum_cluster_size 3 (both from the example), and
            timeout_millis, for which the document has no value: the gossip's own.

    Raises:
        ConfigError: as `keyspace_preset`.
    """
    found = _parameters("fixed", _FIXED, parameters)
    settings = _checked(
        strategy="average",  # the first time it deals out in turn
        automatic=False,
        partitions=found["no_of_partitions"],
        min_cluster_size=found["minimum_cluster_size"],
    )
    timeout_ms = _number("timeout_millis", found)
    return KeyspacePreset(settings, None if timeout_ms is None else timeout_ms / 1_000)


def volley(**parameters: Number) -> KeyspacePreset:
    """Of key groups in ranges.

    Args:
        parameters: max_key_groups 256, and num_workers 1, before which nothing is assigned.

    Raises:
        ConfigError: as `keyspace_preset`.
    """
    found = _parameters("volley", _VOLLEY, parameters)
    settings = _checked(
        strategy="range",
        partitions=found["max_key_groups"],
        min_cluster_size=found["num_workers"],
    )
    return KeyspacePreset(settings)


KEYSPACE_PRESETS: Final[dict[str, Callable[..., KeyspacePreset]]] = {
    "ripple": ripple,
    "fixed": fixed,
    "volley": volley,
}

_RIPPLE: Final[dict[str, Number]] = {
    "total_partitions": 128,
    "heartbeat_timeout_sec": 30,
    "checkpoint_interval_sec": 10,
    "virtual_nodes": RING_POINTS_COUNT,
    "max_keys_per_partition": 2_000,
}
_FIXED: Final[dict[str, Number]] = {
    "no_of_partitions": 9,
    "minimum_cluster_size": 3,
    "timeout_millis": None,
}
_VOLLEY: Final[dict[str, Number]] = {"max_key_groups": 256, "num_workers": 1}


def _parameters(
    preset: str, defaults: dict[str, Number], given: dict[str, Number]
) -> dict[str, Any]:
    """*defaults* with what is *given* in their place."""
    names = {_plain(name): name for name in defaults}
    # The text speaks of heartbeat_timeout, the table of heartbeat_timeout_sec.
    names |= {plain.removesuffix("sec"): name for plain, name in names.items()}
    found: dict[str, Any] = {}
    for written, value in given.items():
        name = names.get(_plain(written))
        if name is None:
            message = f"{preset} has no parameter {written!r}; it has {', '.join(defaults)}"
            raise ConfigError(message)
        if name in found:
            message = f"{preset} has {name} twice, the second time as {written!r}"
            raise ConfigError(message)
        found[name] = value
    return {**defaults, **found}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _checked(**settings: Any) -> Settings:  # noqa: ANN401 - `Definition` looks at them
    Definition(name="preset", **settings)
    return cast(Settings, settings)


def _number(name: str, found: dict[str, Any]) -> float | None:
    value = found[name]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LONG:
        message = f"{name} is a number above 0 and below {_LONG}, not {value!r}"
        raise ConfigError(message)
    return float(value)


_LONG: Final = 1_000_000_000
