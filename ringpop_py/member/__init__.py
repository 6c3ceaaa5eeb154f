"""Who is here, and who owns a key.

It promises that members that reach each other come to the same list, that a dead one is noticed and
a living one stays, and that equal lists give equal rings. docs/protocol.md has the rules.

Begin with `swim/node.py`, the protocol as one state machine; then `ring/hashring.py`, the owner of
a key, and `drain.py`, the end of a node. `discovery` finds the first hosts to contact.

It imports `base`. `swim`, `ring` and `drain` are pure, and membership does not know the ring.
"""
