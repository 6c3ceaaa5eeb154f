"""Slot logs under random schedules: several nodes, a partition, a store, and all that may go wrong.

A schedule is a function of its seed. `schedule.py` runs one schedule with the product's own
`SlotLog`; `shelf.py` is the store, `road.py` the unreliable way to it, and `process.py` a node's
driver. `clients.py` has the clients that write and read, `truth.py` says what must hold, and
`sweep.py` runs many schedules.
"""
