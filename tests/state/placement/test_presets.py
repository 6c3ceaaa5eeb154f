"""`ringpop_py.state.placement.presets`: keyspaces by the names of other designs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringpop_py.base.config.settings import PRESETS
from ringpop_py.base.errors import ConfigError
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.presets import KEYSPACE_PRESETS, keyspace_preset
from ringpop_py.state.placement.strategies import assign

LAN = PRESETS["lan"]


def test_ripple_has_its_documents_defaults() -> None:
    """R16."""
    ripple = keyspace_preset("ripple")

    assert ripple.settings == {
        "strategy": "ring",
        "partitions": 128,
        "checkpoint_interval_s": 10,
        "max_keys_per_partition": 2_000,
        "virtual_nodes": 128,
    }
    assert ripple.dead_after_s == 30


def test_fixed_waits_for_its_members_and_moves_nothing_by_itself() -> None:
    """F4, F5, F12."""
    fixed = Definition(name="greek", **keyspace_preset("fixed").settings)

    assert (fixed.partitions, fixed.min_cluster_size, fixed.automatic) == (9, 3, False)
    first = assign(fixed.strategy, fixed.partitions, ["athens", "byzantium", "cyrene"])
    assert first == ("athens", "byzantium", "cyrene") * 3


def test_volley_has_256_key_groups_in_ranges() -> None:
    """V3, V4."""
    volley = Definition(name="keyed", **keyspace_preset("volley").settings)

    owners = assign(volley.strategy, volley.partitions, ["w0", "w1", "w2"])

    assert [owners.index(name) for name in ("w0", "w1", "w2")] == [0, 86, 171]
    assert len(owners) == 256


@pytest.mark.parametrize(
    ("preset", "written", "setting", "value"),
    [
        ("ripple", "total_partitions", "partitions", 64),
        ("ripple", "checkpoint_interval", "checkpoint_interval_s", 3),
        ("ripple", "checkpoint_interval_sec", "checkpoint_interval_s", 3.5),
        ("ripple", "max_keys_per_partition", "max_keys_per_partition", None),
        ("fixed", "noOfPartitions", "partitions", 30),
        ("fixed", "MINIMUM_CLUSTER_SIZE", "min_cluster_size", 5),
        ("volley", "max_key_groups", "partitions", 128),
        ("volley", "numWorkers", "min_cluster_size", 3),
        ("ripple", "virtualNodes", "virtual_nodes", 64),
    ],
)
def test_parameters_have_the_names_of_the_documents(
    preset: str, written: str, setting: str, value: float | None
) -> None:
    settings = keyspace_preset(preset, **{written: value}).settings

    assert dict(settings)[setting] == value


@pytest.mark.parametrize(
    ("preset", "parameters", "says"),
    [
        ("ripple", {"virtual_nodes": 0}, "virtual_nodes is a whole number"),
        ("ripple", {"partitions": 64}, "no parameter 'partitions'; it has total_partitions"),
        ("ripple", {"heartbeat_timeout": 1, "heartbeat_timeout_sec": 1}, "twice"),
        ("ripple", {"heartbeat_timeout_sec": 0}, "heartbeat_timeout_sec is a number above 0"),
        ("ripple", {"heartbeat_timeout_sec": float("nan")}, "heartbeat_timeout_sec"),
        ("ripple", {"total_partitions": 0}, "partitions is a whole number"),
        ("fixed", {"timeout_millis": "soon"}, "timeout_millis is a number"),
        ("volley", {"flight_port": 1}, "no parameter 'flight_port'"),
        ("kafka", {}, "no preset is called 'kafka'; there are ripple, fixed, volley"),
    ],
)
def test_a_preset_or_parameter_that_cannot_be_used_is_refused(
    preset: str, parameters: dict[str, float], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        keyspace_preset(preset, **parameters)


def test_the_time_until_a_silent_member_is_given_up_is_that_of_the_gossip() -> None:
    gossip = keyspace_preset("ripple", heartbeat_timeout_sec=30).gossip(LAN)

    probe_s = LAN.period_s + LAN.ping_timeout_s + LAN.ping_req_timeout_s
    assert gossip.suspect_s + probe_s == pytest.approx(30)
    assert replace(LAN, suspect_s=gossip.suspect_s, confirmations=False) == gossip


def test_nobody_is_given_up_faster_than_a_probe() -> None:
    with pytest.raises(ConfigError, match="a probe takes up to"):
        keyspace_preset("fixed", timeout_millis=200).gossip(LAN)


@pytest.mark.parametrize("preset", ["fixed", "volley"])
def test_where_a_document_has_no_time_the_gossip_stays_as_it_is(preset: str) -> None:
    assert keyspace_preset(preset).gossip(LAN) is LAN


def test_all_presets_can_be_created() -> None:
    made = [Definition(name=name, **keyspace_preset(name).settings) for name in KEYSPACE_PRESETS]

    assert [definition.strategy for definition in made] == ["ring", "average", "range"]
