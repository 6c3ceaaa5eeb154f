"""Worlds of processes for shuffles, in virtual time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.flow.shuffle.server.world import World, world_of
from tests.virtual import held_for_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from trio.testing import MockClock


@pytest.fixture
def virtual_time(autojump_clock: MockClock) -> Iterator[None]:
    with held_for_threads(autojump_clock):
        yield


@pytest.fixture
def worlds(virtual_time: None, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[World]]:
    del virtual_time
    return partial(world_of, tmp_path)
