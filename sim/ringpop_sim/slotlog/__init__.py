"""Slot logs under random schedules: several nodes, a partition, a store, and all that goes wrong.

A schedule is a function of its seed. `schedule.py` runs one, with the product's own `SlotLog`;
`shelf.py` is the store, `process.py` a node's driver, `clients.py` who writes and reads through it;
`truth.py` says what must hold; `sweep.py` runs many.
"""
