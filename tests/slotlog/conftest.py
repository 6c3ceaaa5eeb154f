"""Nodes with a slot log each, over one store."""

from __future__ import annotations

import pytest

from tests.slotlog.slotlogs import Node, Store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def a(store: Store) -> Node:
    return Node("a", store)


@pytest.fixture
def b(store: Store) -> Node:
    return Node("b", store)
