"""Argument types for argparse: numbers in range, with a readable error for anything else."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A number of things."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        message = f"a whole number, 1 or more, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return value


def seconds(text: str) -> float:
    """A time to wait."""
    value = _number(text)
    if not 0 <= value < float("inf"):
        message = f"a number of seconds, 0 or more, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return value


def milliseconds(text: str) -> float:
    """A period."""
    value = _number(text)
    if not 0 < value < float("inf"):
        message = f"a number of milliseconds above 0, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
