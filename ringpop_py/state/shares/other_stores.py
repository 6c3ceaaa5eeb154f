"""Members with another store: keyspaces that they have there are not in ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringpop_py.base.errors import ConfigError

if TYPE_CHECKING:
    from ringpop_py.state.shares.view import NodeView

OTHERS_NAMED_MAX: Final = 5


def check_that_all_share(node: NodeView, label: tuple[str, str], name: str) -> None:
    """Raise ConfigError if members have another store: they may have the keyspace *name* there.

    Args:
        label: the label by which members tell which store they have, as it is here.
    """
    key, ours = label
    others = [
        member.name
        for member in node.members
        if member.status.reachable and dict(member.labels).get(key, ours) != ours
    ]
    if others:
        raise ConfigError(
            f"keyspace {name!r} is not in the store of {node.name!r}, and other members have"
            f" another store: {', '.join(others[:OTHERS_NAMED_MAX])}. A keyspace that is created"
            f" here would not be theirs. Is {node.config.store or 'the given one'} the right store?"
            " If it is, these are two clusters: give them different names"
        )
