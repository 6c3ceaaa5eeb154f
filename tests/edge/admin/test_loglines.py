"""``/admin/log``: which lines of the log a caller gets, and that no secret is in them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from ringpop_py.base.errors import BodyError
from ringpop_py.base.logs import log
from ringpop_py.edge.admin.checkup import PAGE_MAX, SHOWN, recent
from ringpop_py.edge.admin.endpoints import LEAST
from ringpop_py.net.security.identity import Role

if TYPE_CHECKING:
    from ringpop_py.base.logs import Kept


class Named:
    name = "n1"


def asked(**body: object) -> dict[str, Any]:
    answer = recent(Named(), body or None)  # type: ignore[arg-type]
    assert isinstance(answer, dict)
    return answer


def numbers(answer: dict[str, Any]) -> list[int]:
    return [line["number"] for line in answer["lines"]]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> deque[Kept]:
    rows: deque[Kept] = deque()
    monkeypatch.setattr(log, "kept", rows)
    monkeypatch.setattr(log, "_watched_until", 0.0)  # another test may have asked for debugging
    return rows


def fill(kept: deque[Kept], first: int, last: int, level: int = 20) -> None:
    kept += ((number, 5.0, level, "event", {"n": number}, "") for number in range(first, last + 1))


def test_a_line_is_text_and_has_its_traceback(kept: deque[Kept]) -> None:
    kept.append((1, 5.0, 20, "ready", {"hosts": 2}, ""))
    kept.append((2, 6.0, 40, "failed", {"text": "it failed"}, "Traceback …\nValueError: x\n"))

    answer = asked(after=0)

    assert answer == {
        "source": "n1",
        "last": 2,
        "forgotten": 0,
        "lines": [
            {"number": 1, "at": 5.0, "level": "info", "event": "ready", "text": "ready hosts=2"},
            {
                "number": 2,
                "at": 6.0,
                "level": "error",
                "event": "failed",
                "text": "it failed",
                "traceback": "Traceback …\nValueError: x\n",
            },
        ],
    }


def test_without_a_number_the_last_lines_are_given_and_then_those_that_follow(
    kept: deque[Kept],
) -> None:
    fill(kept, 1, SHOWN + 3)
    first = asked()
    fill(kept, SHOWN + 4, SHOWN + 5)
    second = asked(after=first["last"])
    third = asked(after=second["last"])

    assert numbers(first) == list(range(4, SHOWN + 4))
    assert numbers(second) == [SHOWN + 4, SHOWN + 5]
    assert (numbers(third), third["last"]) == ([], SHOWN + 5)


def test_more_than_a_page_comes_in_pages(kept: deque[Kept]) -> None:
    fill(kept, 1, PAGE_MAX + 7)

    first = asked(after=0)
    second = asked(after=first["last"])

    assert numbers(first) + numbers(second) == list(range(1, PAGE_MAX + 8))
    assert len(numbers(second)) == 7


def test_lines_below_the_level_are_passed_over(kept: deque[Kept]) -> None:
    fill(kept, 1, 2)
    fill(kept, 3, 3, level=30)
    fill(kept, 4, 5)

    answer = asked(after=0, level="warning")

    assert (numbers(answer), answer["last"]) == ([3], 5)


def test_how_many_lines_were_forgotten_is_told(kept: deque[Kept]) -> None:
    fill(kept, 50, 60)

    assert [asked(after=after)["forgotten"] for after in (40, 49, 55)] == [9, 0, 0]
    assert asked()["forgotten"] == 0


def test_debugging_is_kept_once_it_is_asked_for(kept: deque[Kept]) -> None:
    log.debug("unseen")
    asked(level="info")
    log.debug("unseen")
    asked(level="debug")
    log.debug("seen")

    assert [row[3] for row in kept] == ["seen"]
    assert [line["event"] for line in asked(level="debug")["lines"]] == ["seen"]


def test_no_secret_is_in_a_line(kept: deque[Kept]) -> None:
    url = "s3://ann:hunter2@bucket/x"
    kept.append((1, 5.0, 20, "opened", {"store": url}, f"ValueError: {url}\n"))

    assert "hunter2" not in str(asked())
    assert "bucket/x" in str(asked())


@pytest.mark.parametrize("body", [{"after": -1}, {"level": "all"}, {"after": "x"}])
def test_a_request_that_makes_no_sense_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(BodyError):
        asked(**body)


def test_only_admins_read_the_log() -> None:
    assert LEAST["/admin/log"] is Role.ADMIN
