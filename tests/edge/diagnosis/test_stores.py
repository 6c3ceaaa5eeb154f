"""ringpopctl store verify, on a folder that a node has left."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ringpop_py import Config, open_ringpop
from ringpop_py.edge.cli.commands import ExitCode
from ringpop_py.edge.ctl.ringpopctl import main
from ringpop_py.edge.diagnosis.stores import DAMAGED, SHOWN_MAX, text_of
from ringpop_py.state.backups.verify import Verified

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def a_folder(path: Path) -> Path:
    folder = path / "store"
    config = Config(name="ant", store=str(folder), create_store=True)
    async with open_ringpop(config) as node:
        keyspace = await node.open_keyspace("k", partitions=4)
        await keyspace.put("a", 1)
    return folder


async def test_what_is_damaged_is_named_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = await a_folder(tmp_path)
    url = f"folder://{folder}"

    assert main(["store", "verify", url]) == 0
    sound = capsys.readouterr()
    (slot, *_) = folder.glob("default/keyspaces/k/000001/j/*/*+")
    slot.write_bytes(slot.read_bytes()[:-1])
    assert main(["store", "verify", str(folder), "--keyspace", "k"]) == DAMAGED
    damaged = capsys.readouterr()
    assert main(["store", "verify", url, "--format", "json"]) == DAMAGED
    value = json.loads(capsys.readouterr().out)

    assert sound.out.splitlines()[-1] == "all of it can be read"
    assert (sound.err, damaged.err) == ("", "")
    key = str(slot.relative_to(folder)).removesuffix("+")
    assert damaged.out.splitlines()[2].startswith(f"{key} cannot be read: its checksum")
    assert value["sound"] is False
    assert list(value["found"][-1]["damaged"]) == [key]


async def test_a_store_or_a_keyspace_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = await a_folder(tmp_path)

    assert main(["store", "verify", str(folder / "not")]) == ExitCode.USAGE
    assert "does not exist" in capsys.readouterr().err
    assert not (folder / "not").exists()
    assert main(["store", "verify", str(folder), "--keyspace", "x"]) == ExitCode.FAILED
    assert capsys.readouterr().err == "ringpopctl: the store has no keyspace 'x'\n"


def test_of_much_damage_some_is_shown() -> None:
    found = Verified("c", "k", 1, damaged={f"k{n}": f"k{n} \x1b" for n in range(SHOWN_MAX + 3)})
    found.partitions, found.partitions_damaged = 8, {5: "gone"}

    heads, row, *lines = text_of([found]).splitlines()

    assert heads.split() == (
        ["CLUSTER", "KEYSPACE", "GENERATION", "OBJECTS", "MB", "DAMAGED", "PARTITIONS", "DAMAGED"]
    )
    assert row.split() == ["c", "k", "1", "0", "0.0", str(SHOWN_MAX + 3), "8", "1"]
    assert lines[0] == "k0 \\x1b"
    assert lines[-1] == "… and 4 more; --format json has all"
    assert text_of([]).splitlines()[-1] == "the store is empty"
