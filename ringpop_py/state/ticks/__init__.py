"""Ticks: a schedule runs in the whole cluster, each tick done once, by compare-and-set."""
