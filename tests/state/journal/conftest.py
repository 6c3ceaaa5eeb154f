"""Nodes with a journal each, over one store."""

from __future__ import annotations

import pytest

from tests.state.journal.journals import Node, Store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def a(store: Store) -> Node:
    return Node("a", store)


@pytest.fixture
def b(store: Store) -> Node:
    return Node("b", store)


@pytest.fixture
def c(store: Store) -> Node:
    return Node("c", store)
