"""A node as its application sees it, and the driver of its membership.

It promises that one task owns a node: others hand it their inputs, or act for it while it sleeps;
an error of an application never ends it; and it ends in good order, giving away what it owns.

Begin with `ringpop.py`, the application's view, and `driver.py`, which carries out what
`member/swim` decides. `end.py` is the end of a node, `readiness.py` says when it may be sent
requests.

It imports `base`, `member`, `net`, `route` and `state`.
"""
