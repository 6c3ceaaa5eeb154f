"""An oracle is as good as what it finds: bugs are planted in the core, and each has to be found."""

from __future__ import annotations
