"""ringpopctl debug: what is in the file for a bug report, and what is not."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any

from ringpop_py.base.logs import log
from ringpop_py.client.lines.trust import KEY_VARIABLE
from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl.ringpopctl import main
from ringpop_py.edge.diagnosis.bundle import ABOUT, SECTIONS
from ringpop_py.net.security.keys import read_keys
from tests.edge.ctl.served import ctl, nodes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

PASSWORD = "hunter2-hunter2"  # noqa: S105 - that is what the test is about
STORE = f"s3://ann:{PASSWORD}@bucket/prefix"


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("ringpop-debug/")] = file.read()
    return found


async def test_all_that_members_say_is_in_it_and_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, out = tmp_path / "keys", tmp_path / "bundle.tar.gz"
    assert main(["keygen", str(keys)]) == 0
    monkeypatch.setenv(KEY_VARIABLE, str(keys))
    (key,) = read_keys(str(keys))
    secret = key.line.partition(":")[2]
    labels = (("db_password", PASSWORD), ("zone", "z9"))

    settings = {"cluster_key": str(keys), "labels": labels, "store": STORE}
    async with nodes("ant", "bee:1", **settings) as (ant, _):
        await ant.open_keyspace("carts", partitions=4)
        log.warning(
            "store-slow", store=STORE, key_line=key.line, text=f"{STORE} is slow {key.line}"
        )
        done = await ctl(ant, capsys, "debug", "--out", str(out))
        again = await ctl(ant, capsys, "debug", "--out", str(out))

    assert (done.code, f"wrote {out}: 21 files, " in done.out) == (0, True), done
    assert (again.code, "File exists" in again.err) == (ExitCode.USAGE, True)
    assert out.stat().st_mode & 0o777 == 0o600
    files = unpacked(out)
    kinds = {*SECTIONS, "events", "versions"}
    expected = {f"members/{name}/{kind}.json" for name in ("ant", "bee%3A1") for kind in kinds}
    expected |= {f"members/{name}/log.jsonl" for name in ("ant", "bee%3A1")}
    assert set(files) == expected | {"README", "cluster.json", "ringpopctl.json"}
    whole = b"\n".join(files.values()).decode()
    assert PASSWORD not in whole
    assert secret not in whole
    assert "bucket/prefix is slow" in whole  # it was searched where they would be
    assert "z9" in whole
    assert sorted(json.loads(files["cluster.json"])["silent"]) == []
    assert json.loads(files["members/ant/keyspaces.json"])[0]["name"] == "carts"
    assert "pytest" in json.loads(files["members/bee%3A1/versions.json"])["packages"]
    for line in files["members/ant/log.jsonl"].splitlines():
        assert json.loads(line)["level"] != "debug"


async def test_the_readme_has_a_line_for_each_file_and_the_missing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bundle.tar.gz"

    def refuse(_: Any) -> Any:  # noqa: ANN401 - as a handler has it
        raise RuntimeError("broken")

    async with nodes("ant", "bee", "cat") as (ant, bee, cat):
        bee.channel.serve("ringpop", "/admin/versions", refuse)
        cat.channel.serve("ringpop", "/admin/node", refuse)
        done = await ctl(ant, capsys, "debug", "--out", str(out), "--format", "json")

    said, files = json.loads(done.out), unpacked(out)
    assert (said["files"], said["bytes"]) == (sorted(files), out.stat().st_size)
    assert list(said["silent"]) == ["cat"]
    assert not any("members/cat" in path for path in files)
    assert "versions" in json.loads(files["members/bee/trouble.json"])
    assert "members/bee/versions.json" not in files
    _head, _, *lines = files["README"].decode().splitlines()
    assert [line.partition(": ")[0] for line in lines] == sorted(set(files) - {"README"})
    assert {line.partition(": ")[2] for line in lines} == set(ABOUT.values())
