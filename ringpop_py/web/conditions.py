"""If-Match and If-None-Match: the owner checks those of writes, this node those of reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ringpop_py.keyed.conditions import ANY, Tags, conditional, tag_of
from ringpop_py.web.refusals import HttpRefusal, bad_request

if TYPE_CHECKING:
    from starlette.requests import Request

    from ringpop_py.values.operations import Value
    from ringpop_py.web.forms import Form

_HEADERS: Final = ("if-match", "if-none-match")
_ENTITY_TAG: Final = re.compile(r'[ \t]*(?:(W/)?"([!#-~\x80-\xff]*)"[ \t]*)?(?:,|\Z)')
_PRECONDITION_FAILED: Final = 412


def etag(value: Value, form: Form) -> str:
    """Return the entity tag of *value* in *form*."""
    return f'"{tag_of(value)}{form.suffix}"'


class Conditions:
    """The conditions in the headers of *request*. Raises Refusal if a header is malformed."""

    def __init__(self, request: Request) -> None:
        # If-Match compares strongly: a weak tag matches nothing.
        self._if_match = _tags_in(request, "if-match", weak=False)
        self._if_none_match = _tags_in(request, "if-none-match", weak=True)

    def applied(self, operation: str, argument: Value) -> tuple[str, Value]:
        """Return *operation* and *argument* that take effect only if the conditions hold."""
        return conditional(
            operation,
            argument,
            if_match=_hashes(self._if_match),
            if_none_match=_hashes(self._if_none_match),
        )

    def says_unchanged(self, value: Value, form: Form) -> bool:
        """Return whether the caller has *value* in *form*. Raises Refusal if If-Match fails."""
        tag = tag_of(value)
        wanted = _hashes(self._if_match)
        if wanted is not None and wanted != ANY and tag not in wanted:
            message = f"if-match: the tag of the value is {etag(value, form)}"
            raise HttpRefusal(_PRECONDITION_FAILED, "ConditionFailed", message)
        known = self._if_none_match
        return known is not None and (known == ANY or tag + form.suffix in known)


def refuse_conditions(request: Request, advice: str = "") -> None:
    """Raise Refusal with *advice* if *request*, which is not about one key, has a condition."""
    for header in _HEADERS:
        if header in request.headers:
            rest = f"; {advice}" if advice else ""
            raise bad_request(f"{header} is for a request about one key{rest}")


def _tags_in(request: Request, header: str, *, weak: bool) -> Tags | None:
    """Return the tags in *header*, without quotes; None if there is no such header."""
    lines = request.headers.getlist(header)
    if not lines:
        return None
    text = ",".join(lines)
    if text.strip() == ANY:
        return ANY
    tags, position = [], 0
    while position < len(text):
        found = _ENTITY_TAG.match(text, position)
        if found is None:
            raise bad_request(
                f'{header} is a list of tags in quotes ("…"), or {ANY}; not {text!r:.100}'
            )
        position = found.end()
        is_weak, tag = found.groups()
        if tag is not None and (weak or not is_weak):
            tags.append(tag)
    return tags


def _hashes(tags: Tags | None) -> Tags | None:
    """Return *tags* without the suffixes of forms: a write replaces a value, whatever its form."""
    return tags if tags is None or tags == ANY else [tag.partition(".")[0] for tag in tags]
