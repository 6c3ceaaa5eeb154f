"""The manifest in docs/deployment.md has a pod run what can be started, with a key it can use."""

from __future__ import annotations

import argparse
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringpop_py import Address
from ringpop_py.edge.cli.options import add_node_options, config_from
from ringpop_py.net.security.keys import is_open, new_key, write_keys

if TYPE_CHECKING:
    from ringpop_py.base.config.settings import Config

GUIDE: Final = (Path(__file__).parents[1] / "docs" / "deployment.md").read_text("utf-8")
[MANIFEST] = re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
POD: Final = {"POD_IP": "10.0.0.7", "POD_NAME": "ringpop-0", "NAMESPACE": "shop"}
GRACE_S: Final = r"terminationGracePeriodSeconds: (\d+)"


def config_of_the_pod(key: Path) -> Config:
    write_keys(str(key), (new_key(),), replace=False)
    arguments = re.findall(r"^ +- (--\S+)$", MANIFEST, flags=re.MULTILINE)
    text = "\n".join(arguments).replace("/keys/cluster.key", str(key))
    for name, value in POD.items():
        assert f"{{name: {name}, valueFrom" in MANIFEST
        text = text.replace(f"$({name})", value)
    parser = argparse.ArgumentParser()
    add_node_options(parser)
    return config_from(parser.parse_args(text.splitlines()))


def test_its_arguments_are_those_of_a_node(tmp_path: Path) -> None:
    config = config_of_the_pod(tmp_path / "key")

    assert (config.name, config.advertise) == ("ringpop-0", Address("10.0.0.7", 3000))
    assert [str(host) for host in config.hosts] == [
        f"ringpop-{number}.ringpop-headless.shop.svc:3000" for number in range(3)
    ]
    assert not config.insecure


def test_a_node_that_ends_has_the_time_for_it(tmp_path: Path) -> None:
    [grace_s] = re.findall(GRACE_S, MANIFEST)

    assert int(grace_s) > config_of_the_pod(tmp_path / "key").drain_timeout_s + 10


def test_its_user_may_read_the_key_and_the_node_accepts_that() -> None:
    [mode] = re.findall(r"defaultMode: 0(\d+)", MANIFEST)
    [user] = re.findall(r"runAsUser: (\d+)", MANIFEST)
    [group] = re.findall(r"fsGroup: (\d+)", MANIFEST)
    row = [stat.S_IFREG | int(mode, 8), 1, 1, 1, 0, int(group), 64, 0, 0, 0]

    assert not is_open(os.stat_result(row), int(user), [int(group)])
    assert is_open(os.stat_result(row), int(user), [])
