"""Flags and the configuration file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest
import trio

from ringpop_py.base.address import Address
from ringpop_py.base.errors import ConfigError
from ringpop_py.edge.cli.options import add_node_options, config_from
from ringpop_py.member.swim.member import Status
from tests.state.keyspaces.clusters import a_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from ringpop_py.base.config.settings import Config


def parse(*arguments: str) -> Config:
    parser = argparse.ArgumentParser()
    add_node_options(parser)
    return config_from(parser.parse_args(arguments))


def test_flags_of_ringpops_own_test_program_are_understood(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text('["127.0.0.1:3000"]')

    config = parse(
        "--listen=127.0.0.1:3000",
        f"--hosts={hosts}",
        "--identity=one",
        "--suspect-period=2000",
        "--faulty-period=3000",
        "--tombstone-period=500",
        "--drain-timeout=2.5",
    )

    assert config.listen == Address("127.0.0.1", 3000)
    assert config.name == "one"
    assert (config.gossip.suspect_s, config.gossip.faulty_s) == (2.0, 3.0)
    assert config.gossip.tombstone_s == 0.5
    assert config.drain_timeout_s == 2.5


@pytest.mark.parametrize(
    ("in_file", "flags", "cluster"),
    [
        ("", (), "default"),
        ("", ("--dialect=ringpop",), "ringpop"),
        ('dialect = "ringpop"', (), "ringpop"),
        ('dialect = "ringpop"', ("--dialect=native",), "default"),
        ('cluster = "mine"', ("--dialect=ringpop",), "mine"),
        ('cluster = "default"', ("--dialect=ringpop",), "default"),
        ("", ("--dialect=ringpop", "--cluster=default"), "default"),
        ('cluster = "mine"', ("--dialect=ringpop", "--cluster=other"), "other"),
    ],
)
def test_the_dialect_implies_the_name_of_the_cluster_unless_it_is_given(
    in_file: str, flags: tuple[str, ...], cluster: str, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(in_file)

    config = parse("--listen=127.0.0.1:3000", "--config", str(file), *flags)

    assert config.cluster == cluster


def test_flags_override_the_file_and_the_file_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'listen = "127.0.0.1:4000"\ncluster = "file"\npreset = "local"\n'
        "[gossip]\nperiod_s = 0.4\n[proxy]\nretry_schedule_s = [0, 0.5, 2]\n"
        '[labels]\nzone = "a"\n[state]\nhandoffs_max = 7\n'
    )

    flags = ("--cluster", "flag", "--label", "rack=7", "--partitions-max", "70000")
    config = parse("--config", str(file), *flags)

    assert config.cluster == "flag"
    assert config.listen.port == 4000
    assert config.gossip.period_s == 0.4
    assert config.gossip.suspect_s == 2.0
    assert config.proxy.retry_schedule_s == (0, 0.5, 2)
    assert config.labels == (("rack", "7"), ("zone", "a"))
    assert config.state.handoffs_max == 7
    assert (config.state.keyspaces_max, config.state.partitions_max) == (1_000, 70_000)


@pytest.mark.virtual_time
@pytest.mark.parametrize("seconds", [30, 8])
async def test_a_silent_member_is_declared_faulty_about_as_late_as_the_flag_says(
    seconds: float,
) -> None:
    """As a worker of Ripple, whose coordinator counts it as dead after 30 s without a heartbeat."""
    config = parse("--listen=127.0.0.1:3000", f"--dead-after={seconds}")
    async with a_cluster(gossip=config.gossip) as cluster:
        a, b, c = [await cluster.start(name) for name in "abc"]
        for node in (a, b, c):
            await node.wait_until(lambda node: len(node.ring) == 3)
        cluster.hang("c")
        silent_since = trio.current_time()
        for node in (a, b):
            await node.wait_until(lambda node: node.status_of("c") is Status.FAULTY)
        took_s = trio.current_time() - silent_since

    assert seconds - 2 < took_s < seconds + 5


def test_a_member_cannot_be_dead_before_a_probe_of_it_has_ended() -> None:
    with pytest.raises(ConfigError, match=r"after 1 s of silence: a probe takes up to 1\.7 s"):
        parse("--listen=127.0.0.1:3000", "--dead-after=1")


def test_a_store_is_named_by_a_flag_or_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('listen = "127.0.0.1:4000"\nstore = "/srv/file"\n')

    assert parse("--config", str(file)).store == "/srv/file"
    assert parse("--config", str(file), "--store", "sqlite:///srv/db").store == "sqlite:///srv/db"
    assert parse("--listen", "127.0.0.1:1").store is None


def test_whom_http_in_believes_is_named_by_flags_or_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[entry]\ntrusted = []\n")
    own = ("--listen", "127.0.0.1:1")

    assert "10.0.0.0/8" in parse(*own).entry.trusted
    assert parse(*own, "--config", str(file)).entry.trusted == ()
    flags = ("--http-in-trust", "10.0.0.5", "--http-in-trust", "fd00::/8")
    assert parse(*own, "--config", str(file), *flags).entry.trusted == ("10.0.0.5", "fd00::/8")
    with pytest.raises(ConfigError, match="trusted is a tuple of networks"):
        parse(*own, "--http-in-trust", "nginx")


def test_a_certificate_for_http_is_named_by_flags_or_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('listen = "127.0.0.1:4000"\nhttp_cert = "a.crt"\nhttp_key = "a.key"\n')

    config = parse("--config", str(file), "--http-key", "b.key")

    assert (config.http_cert, config.http_key) == ("a.crt", "b.key")
    assert parse("--listen", "127.0.0.1:1").http_cert is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "localhost"), "--listen 'localhost' is not HOST:PORT"),
        (("--listen", "127.0.0.1:1", "--dialect", "klingon"), "'native' or 'ringpop'"),
        (("--listen", "127.0.0.1:1", "--hosts", "/nonexistent"), "No such file"),
        (("--listen", "127.0.0.1:1", "--preset", "moon"), "preset is one of"),
        (("--listen", "127.0.0.1:1", "--label", "x"), "KEY=VALUE"),
        (("--listen", "127.0.0.1:1", "--label", "__x=1"), "label '__x': .* the node's own"),
        (("--listen", "127.0.0.1:1", "--label", "ringpop.store=1"), "label 'ringpop.store': "),
        (("--listen", "127.0.0.1:1", "--app-url", "localhost:80"), "app_url"),
        (("--listen", "127.0.0.1:1", "--app-url", "http://[bad"), "app_url"),
        (("--listen", "127.0.0.1:1", "--app-url", "http://x:99999"), "app_url"),
        (("--listen", "127.0.0.1:1", "--config", "/nonexistent"), "config file"),
        (("--listen", "127.0.0.1:1", "--ring-points", "0"), "ring_points"),
        ((), "--listen HOST:PORT is missing"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_in_one_line(
    arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(*arguments)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listn = 1", r"listn: unknown; did you mean listen\?"),
        ("app = 'hello:create'", "'app' can only be set by a flag: --app"),
        ("gc_threshold = 7", "'gc_threshold' can only be set by a flag: --gc-threshold"),
        ("log_format = 'json'", "'log_format' can only be set by a flag: --log-format"),
        ("listen = 3000", "listen '3000' is not HOST:PORT"),
        ("ring_points = 'many'", "ring_points is a whole number from 1 to 10,000, not 'many'"),
        ("[proxy]\ntimeout_s = 'x'", r"proxy\.timeout_s is a number above 0, not 'x'"),
        ("[proxy]\nretry_schedule_s = '1'", r"proxy\.retry_schedule is a tuple of seconds"),
        ("[gossip]\nquiet = 1", r"gossip\.quiet is true or false, not 1"),
        ("[gossip]\nperiod = 1", r"gossip\.period: unknown; did you mean gossip\.period_s\?"),
        ("[gossip]\nperiod_s = -1", "period_s is a number of seconds from 0.001 to 60"),
        ("gossip = 5", "gossip: is a table, not 5"),
        ("cluster", "not TOML"),
        ("[gossip]\nperiod_s = '1'", "period_s is a number of seconds from 0.001 to 60"),
        ("[gossip]\nperiod_s = true", "period_s is a number of seconds from 0.001 to 60"),
        ("[gossip]\nperiod_s = 1e300", "period_s is a number of seconds from 0.001 to 60"),
        ("[gossip]\nping_req_size = 2.5", "ping_req_size is a whole number from 1 to 100"),
        ("[wire]\nheaders_max = 'x'", "headers_max is a whole number from 1 to 1,099,511,627,776"),
        ("[state]\nhandoffs = 1", r"state\.handoffs: unknown; did you mean state\.handoffs_max\?"),
        ("[state]\nwait_s = 0", "wait_s is a number above 0"),
        ("store = 5", "store is text"),
        ("service = 5", "service is 1 to 255 bytes"),
        ("app_url = 5", "app_url is http://HOST:PORT"),
        ("hosts_file = 5", "hosts_file is text"),
        ("hosts = 5", "hosts: is a list"),
        ("preset = ['lan']", "preset: is 'local', 'lan', 'wan' or 'ringpop'"),
        ("labels = 'x'", "labels"),
        ("[labels]\na = 1", "labels"),
        ("[labels]\n__a = '1'", "label '__a': "),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=f"^config file {file}: .*{message}"):
        parse("--listen", "127.0.0.1:1", "--config", str(file))


def test_a_setting_that_is_unknown_is_told_which_there_are(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("xyzzy = 1")

    with pytest.raises(ConfigError) as caught:
        parse("--config", str(file))

    _, _, known = str(caught.value).partition("; there are ")
    assert known == (
        "accept_plain, advertise, app_health, app_url, audit, cluster, cluster_key, "
        "create_store, dial_plain, dialect, drain_timeout_s, entries_folder, entry, expect, "
        "gossip, hosts, hosts_file, "
        "http, http_cert, http_hosts, http_in, http_in_key, http_key, insecure, labels, lease, "
        "listen, name, preset, proxy, ring_points, service, shuffle, socket, state, statsd, "
        "store, tracing, wire"
    )


def test_all_that_is_wrong_in_a_file_is_told_at_the_same_time(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("listn = 1\nring_points = 0\n[gossip]\nperiod_s = -1\nquiet = 1\n")

    with pytest.raises(ConfigError) as caught:
        parse("--config", str(file))

    place = f"config file {file}: "
    assert [line.removeprefix(place) for line in str(caught.value).splitlines()] == [
        "listn: unknown; did you mean listen?",
        "gossip.period_s is a number of seconds from 0.001 to 60, not -1",
        "gossip.quiet is true or false, not 1",
        "ring_points is a whole number from 1 to 10,000, not 0",
    ]


def test_a_mistake_in_a_flag_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("ring_points = 50")

    with pytest.raises(
        ConfigError, match=r"^ring_points is a whole number from 1 to 10,000, not 0"
    ):
        parse("--listen", "127.0.0.1:1", "--config", str(file), "--ring-points", "0")


@pytest.mark.parametrize("text", ["x", "0", "inf"])
def test_a_period_that_is_none_is_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        parse("--suspect-period", text)

    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"--suspect-period: a number of milliseconds above 0, not {text!r}")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("suspect-period = 3000", "gossip.suspect_s, in seconds"),
        ("suspect_period = 3000", "gossip.suspect_s, in seconds"),
        ("ring-points = 7", "ring_points"),
        ("identity = 'a'", "name"),
        ("app-url = 'http://127.0.0.1:1'", "app_url"),
    ],
)
def test_a_flag_in_a_file_is_told_its_name_there(tmp_path: Path, text: str, right: str) -> None:
    (tmp_path / "node.toml").write_text(text)

    with pytest.raises(ConfigError, match=rf"unknown; in a file this is {right}"):
        parse("--listen", "127.0.0.1:1", "--config", str(tmp_path / "node.toml"))
