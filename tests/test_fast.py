"""Which tests belong to a change."""

from __future__ import annotations

import grimp
import pytest

from tests.fast import packages_of, paths_for, with_importers


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("ringpop_py")


def test_files_of_the_product_are_of_packages_or_are_modules() -> None:
    files = [
        "ringpop_py/member/swim/node.py",
        "ringpop_py/route/errand.py",
        "docs/journal.md",
        "README.md",
    ]

    assert packages_of(files) == {"member/swim", "route/errand"}


def test_importers_of_a_changed_package_are_tested_as_well(graph: grimp.ImportGraph) -> None:
    found = with_importers({"state/journal"}, graph)

    assert {"state/journal", "state/durable", "state/partition"} <= found
    assert "member/swim" not in found


def test_the_tests_of_a_change_are_those_of_its_packages_and_its_own(
    graph: grimp.ImportGraph,
) -> None:
    found = paths_for(
        ["ringpop_py/edge/web/routes.py", "tests/member/ring/test_hashring.py"], graph
    )

    assert {"tests/edge/web", "tests/edge/test_daemon.py", "tests/test_layers.py"} <= set(found)
    assert "tests/state/journal" not in found


def test_a_file_that_is_gone_is_not_run(graph: grimp.ImportGraph) -> None:
    assert "tests/test_gone.py" not in paths_for(["tests/test_gone.py"], graph)
