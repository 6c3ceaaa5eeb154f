"""Code of an application must not end a node, whatever it raises: what is a fault of its own?"""

from __future__ import annotations

from typing import Final

TEXT_CHARACTERS_MAX: Final = 10_000
"""The longest text of an exception that is passed on; a longer one is cut."""
_ENDS: Final = (KeyboardInterrupt, GeneratorExit)


def is_fault(error: BaseException, *also_end: type[BaseException]) -> bool:
    """Return whether *error*, which code of an application raised, is a fault of that code.

    It is, unless it ends the task or the program: Ctrl-C, and a cancellation, whose class a caller
    that awaits adds in *also_end*. ``sys.exit()`` is a fault, since the code is a guest.

    A group is a fault if one of its errors is, unless Ctrl-C is among them. A cancellation that is
    lost thereby comes again at the next checkpoint; but if a task that failed in its clean-up were
    raised together with the cancellation, it would end the node.
    """
    if isinstance(error, BaseExceptionGroup):
        ends = error.subgroup(_ENDS) is not None
        return not ends and any(is_fault(each, *also_end) for each in error.exceptions)
    return not isinstance(error, (*_ENDS, *also_end))


def text_of(error: BaseException) -> str:
    """Return the text of *error* as text that can be sent, even if its class cannot make one."""
    try:
        text = str(error)
    except BaseException as another:
        if not is_fault(another):
            raise
        text = "(its text cannot be made)"
    return sendable(text[:TEXT_CHARACTERS_MAX])


def sendable(text: str) -> str:
    """Return *text* without what UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
