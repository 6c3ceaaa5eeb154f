"""SWIM as a pure state machine: messages, time and chance come in, effects go out.

Read `node` first. Nothing in this package uses a clock, a socket, a log or the ring.
"""
