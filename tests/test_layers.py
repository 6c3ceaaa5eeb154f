"""What the import contracts of pyproject.toml cannot say: calls, and what is loaded at run time."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ringpop_py"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
    "contracts"
]


def files_of(module: str) -> list[Path]:
    path = ROOT / module.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


PURE = [
    path
    for contract in CONTRACTS
    if contract["id"] == "pure"
    for module in contract["source_modules"]
    for path in files_of(module)
]
# Of the module `random`, only the class of generators that are handed in may be named.
RANDOM_ALLOWED = {"Random"}
CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}


def attributes_of(path: Path, module: str) -> set[str]:
    """Which names of *module* the file at *path* uses, as ``module.name`` or imported from it."""
    tree = ast.parse(path.read_text("utf-8"))
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == module
    }
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in aliases
    }
    return imported | used


def modules_loaded_by(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    return set(done.stdout.split())


def relative(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", PURE, ids=relative)
def test_pure_modules_draw_only_from_a_generator_that_is_handed_in(path: Path) -> None:
    assert attributes_of(path, "random") <= RANDOM_ALLOWED


@pytest.mark.parametrize("path", PURE, ids=relative)
def test_pure_modules_read_no_clock(path: Path) -> None:
    assert not attributes_of(path, "time") & CLOCKS


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=relative)
def test_nothing_draws_from_the_generator_that_all_share(path: Path) -> None:
    assert attributes_of(path, "random") <= RANDOM_ALLOWED | {"SystemRandom"}


def test_the_check_itself_sees_each_way_to_reach_a_clock(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text("import time as t\nfrom time import monotonic\nt.time()\n")

    assert attributes_of(file, "time") == {"time", "monotonic"}


@pytest.mark.parametrize(
    "code",
    [
        "import ringpop_py",
        "import ringpop_py.client.sync.client",
        "import ringpop_py.member.ring.hashring",
        "from ringpop_py import Client, Config, HashRing, Request, RingSnapshot",
        "from ringpop_py import Change, Client, KeyspaceClient, OperationId, PartitionUnavailable",
    ],
)
def test_clients_and_rings_load_neither_trio_nor_the_daemon(code: str) -> None:
    loaded = modules_loaded_by(code)

    assert not loaded & {"trio", "httpx", "ringpop_py.edge.daemon", "ringpop_py.net.transport"}


BARE_NODE = """
import ringpop_py.edge.cli.ringpopd, trio
from ringpop_py import Address, Config, open_ringpop

async def start() -> None:
    async with open_ringpop(Config(listen=Address("127.0.0.1", 0))):
        pass

trio.run(start)
"""


def test_a_node_without_store_and_keyspaces_loads_nothing_of_them() -> None:
    loaded = modules_loaded_by(BARE_NODE)

    needed = (
        *(
            "base",
            "member",
            "net.http",
            "net.security",
            "net.transport",
            "net.wire",
            "route",
            "node",
        ),
        *("edge.admin", "edge.cli", "edge.daemon", "edge.instants"),
    )
    heavy = {"pyarrow", "pandas", "httpx", "hypercorn", "asyncio", "rich", "statistics", "tomllib"}
    heavy |= {"cronsim", "zoneinfo"}
    heavy |= {
        "numpy",
        "cryptography",
        "ringpop_py.net.transport.tls",
        "ringpop_py.net.security.credentials",
    }
    ours = {name for name in loaded if name.startswith("ringpop_py.")}
    prefixes = tuple(f"ringpop_py.{name}." for name in needed)
    assert {name for name in ours if not f"{name}.".startswith(prefixes)} == {
        *("ringpop_py.edge", "ringpop_py.net"),
        *("ringpop_py.state", "ringpop_py.state.keyspaces", "ringpop_py.state.keyspaces.on_demand"),
    }
    assert "ringpop_py.base.forks" not in ours
    assert "ringpop_py.edge.admin.keyspaces" not in ours
    assert loaded & heavy == set()


@pytest.mark.parametrize("command", ["cli.ringpopd", "ctl.ringpopctl"])
def test_help_needs_nothing_that_is_installed(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", f"ringpop_py.edge.{command}", "--help"],
        cwd=PACKAGE.parent,
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.startswith(f"usage: {command[4:]} ")


def test_a_client_alone_does_not_wait_for_numpy() -> None:
    assert "numpy" not in modules_loaded_by(
        "import ringpop_py.client.sync.keyspaces, ringpop_py.state.placement.table"
    )


def test_a_pipeline_is_checked_without_spark_and_arrow() -> None:
    loaded = modules_loaded_by("import ringpop_py.cli.pipeline")

    assert not loaded & {"pyspark", "pyarrow", "trio"}


def test_workers_of_spark_load_neither_trio_nor_the_daemon() -> None:
    pytest.importorskip("pyspark", reason="pyspark is an extra: pip install 'ringpop_py[spark]'")

    loaded = modules_loaded_by(
        "import ringpop_py.spark, ringpop_py.state.rows.batches, ringpop_py.client.jobs"
    )

    assert not loaded & {"trio", "ringpop_py.edge.daemon", "ringpop_py.route.proxy.forward"}


def test_no_module_beside_a_script_has_the_name_of_one_of_pythons() -> None:
    """spark-submit runs a file, so its folder comes before Python's own modules."""
    names = {path.stem for path in (PACKAGE / "cli").glob("*.py")}

    assert names & sys.stdlib_module_names == set()
