"""What tests of services need: clusters and stores in memory, in one process.

- `open_local_keyspaces()` has keyspaces and actors in one process: no socket, gossip or node.
- `MemoryNetwork` joins nodes of one process: ``open_ringpop(config, network=network)``. Its `cut`,
  `heal`, `hang` and `resume` do to addresses what networks do to them. Under
  ``trio.testing.MockClock(autojump_threshold=0.01)`` time passes as fast as it is computed.
- `MemoryStore` is a store that tests can make fail: ``store.inject(StoreFault.FULL)`` has the next
  write find no room. Give it to `open_local_keyspaces`, or to nodes as ``store=``.
"""

from __future__ import annotations

from ringpop_py.edge.testing import MemoryNetwork
from ringpop_py.state.keyspaces.local import open_local_keyspaces
from ringpop_py.state.stores.memory import MemoryStore, StoreFault

__all__ = ["MemoryNetwork", "MemoryStore", "StoreFault", "open_local_keyspaces"]
