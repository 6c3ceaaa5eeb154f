"""The whole daemon, simulated: `open_ringpop` itself runs, and only its surroundings are ours.

Each process has a trio scheduler of its own, which the heap of events drives by hand: a pause is
not to drive it, a SIGKILL never to drive it again. Its clock, its network (streams of bytes), the
store, threads and chance are the simulator's. Nothing of the product is changed or written twice,
so that bugs in its drivers show, too. `stage` has what daemons stand on. `cluster` starts daemons
and does to them what a plan says. `keyspaces` has their keyspace and its users, actors and streams
among them, `shuffles` the process for shuffles beside each, and its users. `run` judges them.

This package alone imports the drivers, trio's scheduler, and greenlet (the extra ``sim``).
"""
