"""The signals of one node, together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringpop_py.node.signals.disks import Disks
    from ringpop_py.node.signals.knocks import Knocks
    from ringpop_py.node.signals.reach import Reach
    from ringpop_py.node.signals.strain import Strain


@dataclass(slots=True)
class Signals:
    """See the modules of each; `open_ringpop` sets the disks."""

    reach: Reach
    strain: Strain
    knocks: Knocks
    disks: Disks
