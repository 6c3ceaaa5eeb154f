"""Every exception that a caller can catch."""

from ringpop_py.base.errors import *  # noqa: F403 - all of them are public
from ringpop_py.base.errors import __all__ as __all__
