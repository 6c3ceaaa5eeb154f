"""Keyspaces of simulated clusters: partitions, their store, and clients, on the product's stewards.

`homes.Homes` gives each process of a world a `Home`: the product's steward, gossip and partitions,
and the drivers that production has on trio. `oracles` says what must hold.
"""
