"""What the checkers of logs share: random schedules of nodes, clients and a store.

A schedule is a function of its seed. `world.py` is a heap of events with a trace, `odds.py` draws
how much goes wrong, `road.py` is the unreliable way to the store, `clients.py` has the clients that
write and read, `owners.py` what an owner keeps for them, `truth.py` what they were promised, and
`sweep.py` runs many schedules. `slotlog` and `journal` add a store, a driver and the whole truth.
"""
