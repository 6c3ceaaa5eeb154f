"""Whether any member knows an operation: asked of daemons, without a session of Spark."""

from __future__ import annotations

import pytest
import trio

pytest.importorskip("pyspark", reason="pyspark is not installed")

from ringpop_py import Config, open_ringpop
from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.options import write_options
from ringpop_py.spark.source.kept import check_operations


def check(peer: str, operation: str, distribution: str = "owners") -> None:
    given = {"keyspace": "k", "peers": peer, "operation": operation, "distribution": distribution}
    check_operations(write_options(given | {"maxRetries": "0"}))


@pytest.mark.parametrize("operation", ["put", "add_decimal", "a=add,b=top", "conditional"])
def test_a_built_in_operation_needs_no_question(operation: str) -> None:
    check("127.0.0.1:1", operation)


async def test_an_operation_is_known_if_one_member_knows_it() -> None:
    async with (
        open_ringpop(Config(name="a")) as first,
        open_ringpop(Config(name="b", hosts=(first.address,))) as second,
    ):
        second.aggregation("mine")(lambda _current, argument: argument)
        with trio.fail_after(10):
            while len(first.members) < 2:
                await trio.sleep(0.01)
        peer = str(first.address)

        await trio.to_thread.run_sync(check, peer, "mine")
        await trio.to_thread.run_sync(check, peer, "a=mine,b=add")
        with pytest.raises(
            ConfigError, match=r"'b': no member knows 'min_', perhaps .*, mine, put"
        ):
            await trio.to_thread.run_sync(check, peer, "a=mine,b=min_")
        with pytest.raises(ConfigError, match="no member knows 'mine'"):  # only the daemon is asked
            await trio.to_thread.run_sync(check, peer, "mine", "daemon")
