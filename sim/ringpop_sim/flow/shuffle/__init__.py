"""Random schedules of shuffles: members, clients and readers, and all that may go wrong with them.

The decisions of members and homes are the product's (`ringpop_py/flow/shuffle/protocol`). The work
of drivers on disks and connections is here (`process.py`, `disk.py`, `around.py`), on a heap of
events. `client.py` puts rows, `world.py` says how it has to end, and `truth.py` what must hold.
`schedule.py` runs random schedules; `deaths.py` runs a small one again, with each death before each
of its events.
"""
