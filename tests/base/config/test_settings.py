"""`ringpop_py.base.config.settings`: each value is checked when it is made."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

import ringpop_py
from ringpop_py.base.config.settings import (
    PRESETS,
    Config,
    GossipConfig,
    ProxyConfig,
    WireLimits,
)
from ringpop_py.base.errors import ConfigError


def test_the_defaults_of_gossip_are_ringpops() -> None:
    gossip = GossipConfig()

    assert (gossip.period_s, gossip.ping_timeout_s, gossip.ping_req_timeout_s) == (0.2, 1.5, 5.0)
    assert (gossip.ping_req_size, gossip.join_size, gossip.join_parallelism) == (3, 3, 2)
    assert (gossip.suspect_s, gossip.faulty_s, gossip.tombstone_s) == (5.0, 86_400.0, 60.0)
    assert (gossip.piggyback_factor, gossip.reverse_full_syncs_max) == (15, 5)
    assert PRESETS["ringpop"] == gossip.plain()


@pytest.mark.parametrize(
    "values",
    [
        {"damp_reuse": 5000},
        {"damp_suppress": 10_001},
        {"damp_share": 1.1},
    ],
)
def test_damping_that_could_not_end_or_begin_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="damp_"):
        GossipConfig(**values)


def test_the_plain_protocol_has_every_switch_off_and_the_same_timing() -> None:
    gossip = GossipConfig(period_s=0.3)
    switches = [field.name for field in fields(gossip) if isinstance(field.default, bool)]

    plain = gossip.plain()

    assert not any(getattr(plain, name) for name in switches)
    assert plain == replace(gossip, **dict.fromkeys(switches, False))


@pytest.mark.parametrize(
    "name", [field.name for field in fields(GossipConfig) if not isinstance(field.default, bool)]
)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_every_number_of_gossip_is_above_zero(name: str, value: float) -> None:
    values: dict[str, Any] = {name: value}

    with pytest.raises(
        ConfigError, match=rf"{name} is a (whole )?number (above 0|of seconds from|from \S+ to \S+)"
    ):
        GossipConfig(**values)


def test_all_that_is_wrong_is_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        GossipConfig(period_s=-1, damping=1, damp_reuse="x")  # type: ignore[arg-type]

    assert str(caught.value).splitlines() == [
        "period_s is a number of seconds from 0.001 to 60, not -1",
        "damping is true or false, not 1",
        "damp_reuse is a whole number from 1 to 1,099,511,627,776, not 'x'",
    ]


@pytest.mark.parametrize(
    "values",
    [
        {"period_s": 61},
        {"period_s": 2.0**39},
        {"quiet_period_s": 0.0001},
        {"ping_timeout_s": 601},
        {"ping_req_timeout_s": 601},
        {"join_timeout_s": 601},
        {"ping_req_size": 101},
        {"reverse_full_syncs_max": 1_001},
        {"changes_max": 4_097},
    ],
)
def test_a_setting_that_would_stop_a_node_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"{next(iter(values))} is a (number of seconds|whole number) from \S+ to \S+",
    ):
        GossipConfig(**values)


@pytest.mark.parametrize("name", [field.name for field in fields(WireLimits)])
def test_every_limit_of_the_wire_is_above_zero(name: str) -> None:
    values: dict[str, Any] = {name: 0}

    with pytest.raises(ConfigError, match=f"{name} is a (whole number from 1|number above 0)"):
        WireLimits(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_retries": -1}, "max_retries is a whole number, 0 or more"),
        ({"retry_schedule_s": ()}, "retry_schedule is empty"),
        ({"retry_schedule_s": (0.0, -1.0)}, "retry_schedule is a tuple of seconds"),
        ({"retry_schedule_s": (float("nan"),)}, "retry_schedule is a tuple of seconds"),
        ({"max_retries": True}, "max_retries is a whole number, 0 or more, not True"),
        ({"retry_schedule_s": 1}, "retry_schedule is a tuple of seconds, each 0 or more, not 1"),
        (
            {"retry_schedule_s": "1s"},
            "retry_schedule is a tuple of seconds, each 0 or more, not '1s'",
        ),
        (
            {"retry_schedule_s": ("1",)},
            r"retry_schedule is a tuple of seconds, each 0 or more, not \('1',\)",
        ),
        (
            {"in_flight_max": 2.5},
            "in_flight_max is a whole number from 1 to 1,099,511,627,776, not 2.5",
        ),
        (
            {"body_bytes_max": {}},
            "body_bytes_max is a whole number from 1 to 1,099,511,627,776, not {}",
        ),
        ({"timeout_s": 0}, "timeout_s is a number above 0"),
        ({"timeout_s": float("nan")}, "timeout_s is a number above 0"),
        ({"in_flight_max": 0}, "in_flight_max is a whole number from 1"),
        ({"consistency": "maybe"}, "consistency is 'keys', 'checksum' or 'none'"),
    ],
)
def test_a_proxy_that_cannot_work_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ProxyConfig(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dialect": "klingon"}, "dialect is 'native' or 'ringpop'"),
        ({"cluster": ""}, "cluster is 1 to 128"),
        ({"cluster": "c" * 129}, "cluster is 1 to 128"),
        ({"cluster": "a\nb"}, "cluster is 1 to 128"),
        ({"name": ""}, "name is 1 to 255"),
        ({"name": "n" * 256}, "name is 1 to 255"),
        ({"name": "a\nb"}, "name is 1 to 255"),
        ({"ring_points": 0}, "ring_points is a whole number from 1 to 10,000"),
        ({"ring_points": 10_001}, "ring_points is a whole number from 1 to 10,000"),
        ({"ring_points": "many"}, "ring_points is a whole number from 1 to 10,000, not 'many'"),
        ({"ring_points": 1.5}, "ring_points is a whole number from 1 to 10,000, not 1.5"),
        ({"service": ""}, "service is 1 to 255 bytes"),
        ({"service": "é" * 128}, "service is 1 to 255 bytes"),
        ({"service": "ringpop"}, "service is 1 to 255 bytes"),
        ({"app_url": "localhost:8080"}, "app_url is http://HOST:PORT"),
    ],
)
def test_a_node_that_cannot_work_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**values)


def test_the_groups_of_settings_are_public_names() -> None:
    config = Config()
    values = [getattr(config, field.name) for field in fields(config)]

    groups = {type(value).__name__ for value in values if is_dataclass(value)}

    assert groups == {
        *("EntryConfig", "GossipConfig", "ProxyConfig", "ShuffleConfig", "StateConfig"),
        "WireLimits",
    }
    assert groups <= set(ringpop_py.__all__)


def test_a_cluster_without_a_name_has_that_of_its_dialect() -> None:
    ringpop = Config(dialect="ringpop")

    assert ringpop.cluster == "ringpop"
    assert replace(ringpop, name="a").cluster == "ringpop"
    assert Config(dialect="ringpop", cluster="default").cluster == "default"
    assert Config(cluster="ringpop").cluster == "ringpop"
