"""`ringpop_py.base.faults`: what code of an application raises, and is or is not a fault of it."""

from __future__ import annotations

import pytest

from ringpop_py.base.faults import is_fault


class _Cancelled(BaseException):
    """As trio's, which only trio can make."""


def _group(*errors: BaseException) -> BaseExceptionGroup[BaseException]:
    return BaseExceptionGroup("some", errors)


FAULT, CANCELLED, CTRL_C = SystemExit(3), _Cancelled(), KeyboardInterrupt()


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (FAULT, True),
        (CANCELLED, False),
        (CTRL_C, False),
        (GeneratorExit(), False),
        (_group(FAULT), True),
        (_group(CANCELLED, _group(CANCELLED)), False),
        (_group(CANCELLED, _group(FAULT)), True),
        (_group(FAULT, _group(CTRL_C)), False),
        (_group(_group(FAULT), GeneratorExit()), False),
    ],
)
def test_a_fault_is_what_neither_ends_the_task_nor_the_program(
    error: BaseException, *, fault: bool
) -> None:
    assert is_fault(error, _Cancelled) is fault
