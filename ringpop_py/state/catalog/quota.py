"""How many keyspaces and partitions a cluster may have, as far as one node knows (pure)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringpop_py.base.errors import TooManyKeyspaces
from ringpop_py.net.security.permits import OWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringpop_py.base.config.settings import StateConfig
    from ringpop_py.state.catalog.catalog import CatalogEntry
    from ringpop_py.state.placement.definition import Definition


class Quota:
    """The limits on keyspaces of applications, which each partition costs memory at each node.

    Args:
        entries: what is known of each keyspace, dropped or not, by name; they may change.
    """

    def __init__(self, limits: StateConfig, entries: Mapping[str, CatalogEntry]) -> None:
        self._limits = limits
        self._entries = entries
        self._coming: dict[str, Definition] = {}

    @contextmanager
    def creating(self, definition: Definition) -> Iterator[None]:
        """Count *definition* from now on, as it is about to be created.

        Raises:
            TooManyKeyspaces: with it, there would be more than the limits permit.
        """
        known = {
            name: entry.definition
            for name, entry in self._entries.items()
            if not (entry.dropped or name.startswith(OWN))
        }
        if definition.name in known or definition.name in self._coming:
            yield  # it is counted
            return
        counted = [*{**known, **self._coming}.values()]
        self._check("the cluster", "", definition, counted)
        if creator := definition.creator:
            its = [each for each in counted if each.creator == creator]
            self._check(creator, "client_", definition, its)
        self._coming[definition.name] = definition
        try:
            yield
        finally:
            del self._coming[definition.name]

    def _check(self, who: str, kind: str, of: Definition, counted: Sequence[Definition]) -> None:
        partitions = sum(each.partitions for each in counted)
        for what, there, more in (
            ("keyspaces", len(counted), 1),
            ("partitions", partitions, of.partitions),
        ):
            setting = f"{kind}{what}_max"
            most = getattr(self._limits, setting)
            if there + more > most:
                raise TooManyKeyspaces(
                    f"keyspace {of.name!r} was not created: {who} has {there:,} {what} in all, it"
                    f" would have {there + more:,}, and a node permits {most:,}. Drop keyspaces"
                    f" that nobody needs, create this one with fewer partitions, or restart the"
                    f" nodes with --{setting.replace('_', '-')} N (state.{setting})"
                )
