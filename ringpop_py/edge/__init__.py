"""Where people and other programs come in: command lines, HTTP, the console, web applications.

It promises that what comes from outside is checked before anything is done, that an error says what
to do, and that no page or header tells a stranger anything.

Begin with `daemon.py`, which builds a node from its configuration and runs it in one nursery. Then
`cli` (`ringpopd`, `ringpopctl` and the others), `admin` (endpoints of a node), `web` (its HTTP),
`console` (the page, and what counts as a problem), `entry` (middlewares of web applications, and
what they share with `--http-in`), and `testing` (what tests of services need).

It imports all rooms, and none imports it.
"""
