"""Journals under random schedules: several nodes, several partitions, a store, and all its faults.

A schedule is a function of its seed. `schedule.py` runs one schedule with the product's own
`Journal`, `Recovery` and `Sweep`; `shelf.py` is the store, `road.py` the unreliable way to it,
`process.py` a node's driver, and `world.py` what they live in, on the events of a `Heap`.
`odds.py` draws how much goes wrong. `clients.py` has the clients that write and read, and
`owners.py` what an owner keeps for them. `promises.py` says what clients were promised, `truth.py`
what must hold besides, and `sweep.py` runs many schedules.
"""
