"""The process that holds the rows of shuffles: beside a node, with a port of its own.

`ringpopd --shuffle-folder` starts and watches it (`child.py`). It is a client of its node: the
record of each shuffle lies in the keyspace ``~shuffles`` (`register.py`), and the members that have
such a process say so by a label (`view.py`). What it decides is in `protocol`; how rows are
sorted and lie in files, in `sorting`.
"""
