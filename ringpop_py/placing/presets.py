"""Keyspaces like those of three published designs, under the names and defaults of their documents.

- ``ripple``: 128 partitions on a ring of 128 points a member, at most 2,000 keys in each.
- ``fixed``: Fixed Partitions. They are dealt out in turn once there are enough members. Nothing
  moves to new members before an operator rebalances.
- ``volley``: 256 key groups in contiguous ranges.

A parameter may be written as its document writes it, or in any other case, with underscores or
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

from collections.abc import Callable  # noqa: TC003 - read at run time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from ringpop_py.errors import ConfigError
from ringpop_py.placing.definition import Definition, Settings
from ringpop_py.placing.strategies import RING_POINTS_COUNT

if TYPE_CHECKING:
    from ringpop_py.config.settings import GossipConfig

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
        """Return *base*, changed so that a silent member is declared faulty after `dead_after_s`.

        The time is approximate: it is the time of a probe, and the rest is for the suspect to
        refute. If *base* uses ``evidence``, a member whose machine refuses connections is declared
        faulty sooner.

        Raises:
            ConfigError: if the time is shorter than a probe.
        """
        if self.dead_after_s is None:
            return base
        probe_s = base.period_s + base.ping_timeout_s + base.ping_req_timeout_s
        if self.dead_after_s <= probe_s:
            message = (
                f"a member cannot be declared faulty after {self.dead_after_s:g} s of silence: a"
                f" probe takes up to {probe_s:g} s here; allow more, or shorten the timeouts"
            )
            raise ConfigError(message)
        # Confirmations by other members would shorten the time, or lengthen it if they are missing.
        return replace(base, suspect_s=self.dead_after_s - probe_s, confirmations=False)


def keyspace_preset(name: str, **parameters: Number) -> KeyspacePreset:
    """Return the preset *name* with these *parameters*, named as in its document.

    Raises:
        ConfigError: if there is no such preset or parameter, or a value cannot be used.
    """
    make = KEYSPACE_PRESETS.get(name)
    if make is None:
        message = f"no preset is called {name!r}; there are {', '.join(KEYSPACE_PRESETS)}"
        raise ConfigError(message)
    return make(**parameters)


def ripple(**parameters: Number) -> KeyspacePreset:
    """Return the settings of a ring of workers.

    Args:
        parameters: total_partitions 128, heartbeat_timeout_sec 30, checkpoint_interval_sec 10,
            virtual_nodes 128, max_keys_per_partition 2000.

    Raises:
        ConfigError: as `keyspace_preset`; also if *virtual_nodes* is not 128, because the members
            of a cluster share one ring, for all keyspaces.
    """
    found = _parameters("ripple", _RIPPLE, parameters)
    if found["virtual_nodes"] != RING_POINTS_COUNT:
        message = (
            f"virtual_nodes is {RING_POINTS_COUNT} here, not {found['virtual_nodes']!r}: all"
            " keyspaces share one ring; leave it out"
        )
        raise ConfigError(message)
    settings = _checked(
        strategy="ring",
        partitions=found["total_partitions"],
        checkpoint_interval_s=found["checkpoint_interval_sec"],
        max_keys_per_partition=found["max_keys_per_partition"],
    )
    return KeyspacePreset(settings, _number("heartbeat_timeout_sec", found))


def fixed(**parameters: Number) -> KeyspacePreset:
    """Return the settings of partitions that an operator moves.

    Args:
        parameters: no_of_partitions 9, minimum_cluster_size 3 (both from the document's example),
            and timeout_millis, for which the document has no value: then the gossip's own counts.

    Raises:
        ConfigError: as `keyspace_preset`.
    """
    found = _parameters("fixed", _FIXED, parameters)
    settings = _checked(
        strategy="average",  # deals out in turn the first time, and moves few partitions later
        automatic=False,
        partitions=found["no_of_partitions"],
        min_cluster_size=found["minimum_cluster_size"],
    )
    timeout_ms = _number("timeout_millis", found)
    return KeyspacePreset(settings, None if timeout_ms is None else timeout_ms / 1_000)


def volley(**parameters: Number) -> KeyspacePreset:
    """Return the settings of key groups in ranges.

    Args:
        parameters: max_key_groups 256, and num_workers 1; no partition is assigned before that
            many workers are members.

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
    """Return *defaults*, replaced by what is *given*."""
    names = {_plain(name): name for name in defaults}
    # Ripple's text says heartbeat_timeout, its table heartbeat_timeout_sec: accept both.
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


def _checked(**settings: Any) -> Settings:  # noqa: ANN401 - `Definition` checks the types
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
