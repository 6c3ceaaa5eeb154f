"""The page and its parts, from sections as plain values."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ringpop_py.edge.console.figures import FIGURES
from ringpop_py.edge.console.page import file_of, page_of

KILLED = {
    "level": "critical",
    "cause": "killed",
    "members": ["n10"],
    "text": "n10: the process is gone",
    "evidence": ["all others get <refused>", "it was not drained"],
    "next": "ringpopctl why n10",
    "since": 940.0,
}


def member(name: str, status: str = "alive", **more: object) -> dict[str, Any]:
    numbers = dict.fromkeys(("refuted", "share", "incarnation"), 0)
    unknown = dict.fromkeys(("health", "clock_s", "version", "silent", "console", *FIGURES))
    of: dict[str, Any] = {
        "name": name,
        "address": f"{name}:3000",
        "status": status,
        "marks": [],
        "labels": {},
    }
    of |= {"partitions": None, "dead": status == "faulty"}
    return {**numbers, **unknown, **of, **more}


def part(name: str, **sections: object) -> str:
    members = [member("n1"), member("n10"), member("n2", console="10.0.0.2:3008")]
    counts = {"alive": 3, "faulty": 0}
    head = {"node": "n1", "cluster": "shop", "counts": counts, "at": 1_000.0, "views": 1}
    common = {"head": head, "problems": [], "members": members, "events": [], "keyspaces": []}
    return page_of({**common, **sections}, part=name)


def test_there_is_no_panel_without_a_problem_and_one_has_evidence_and_a_command() -> None:
    assert part("problems") == ""

    panel = part("problems", problems=[KILLED])

    assert "n10: the process is gone" in panel
    assert "<li>all others get &lt;refused&gt;</li><li>it was not drained</li>" in panel
    assert 'data-copy="ringpopctl why n10"' in panel
    assert "data-act" not in panel


@pytest.mark.parametrize("cause", ["cut", "views"])
def test_healing_is_offered_only_where_it_may_help(cause: str) -> None:
    assert 'data-act="heal"' in part("problems", problems=[{**KILLED, "cause": cause}])


def test_the_banner_has_the_title_of_the_tab_and_how_long_it_has_lasted() -> None:
    banner = part("banner", problems=[KILLED])

    assert 'data-title="(1) Critical · shop"' in banner
    assert '<b>Critical · <span data-since="940.0">60 s</span></b>' in banner
    assert "n10: the process is gone" in banner


def test_the_banner_of_an_old_page_names_other_members() -> None:
    old = part("banner").partition('class="ban old')[2]

    assert 'data-title="? Not known · shop"' in old
    assert re.findall(r'href="(.*?)">(\w+)', old) == [("//10.0.0.2:3008/", "n2")]
    assert "ringpopctl --peer n10:3000 check" in old
    assert "see whether its process runs" in part("banner", members=[member("n1")])


def test_members_are_in_natural_order_those_that_are_not_well_first() -> None:
    numbered = [member(f"n{number}") for number in (10, 2, 1)]
    others = [member("n3", "leave"), member("n4", silent="timeout"), member("n5", "suspect")]
    drained = member("n6", marks=["draining"])

    html = part("members", members=[*numbered, *others, drained])

    names = re.findall(r'<tr id="member-(\w+)"', html)
    assert names == ["n4", "n5", "n3", "n6", "n1", "n2", "n10"]


def test_a_member_is_called_by_the_cause_of_its_problem() -> None:
    html = part("members", problems=[KILLED])

    assert re.findall(r'<tr id="member-(\w+)"', html)[0] == "n10"
    assert html.count("process gone") == 1
    assert 'data-find="n10 n10:3000 alive   killed ' in html


def test_a_member_without_time_is_called_starved_and_is_no_outage() -> None:
    starved = {**KILLED, "level": "warning", "cause": "starved", "members": ["n2"]}

    html = part("members", problems=[starved, {**KILLED, "members": ["n2", "n10"]}])

    assert '<span class="st warn"' in html
    assert html.count("starved</span>") == 1  # the first problem is the worst one of n2
    assert html.count("process gone</span>") == 1


def test_figures_that_are_not_known_are_dashes() -> None:
    html = part("members", members=[member("n1", cpu_percent=3, memory_mb=1_140, requests_s=1.2)])

    cells = re.findall(r'<td class="num[ wide]*">(.*?)</td>', html)
    assert cells == ["0.0 %", "1.2", "–", "–", "3 %", "1,140 MB", "–", "–"]  # noqa: RUF001


def test_headings_say_what_the_pictures_show() -> None:
    cell = {"ms": 2.0, "lost": None, "failure": "", "tcp": ""}
    cells = {"n1": {"n2": cell}, "n2": {"n1": {**cell, "failure": "timeout"}}}
    pings = {"names": ["n1", "n2"], "cells": cells, "dead": [], "zones": {"n1": "b", "n2": "a"}}

    assert '<b class="crit">Nobody reaches n1.</b>' in part("matrix", pings=pings)
    assert part("matrix", pings=pings).index(">n2<") < part("matrix", pings=pings).index(">n1<")

    owned = [{"name": "carts", "owners": [0, -1], "states": "su"}]
    members = [member("n1", share=0.6), member("n2", share=0.4), member("n3")]
    say = part("owned", ownership=owned, members=members)
    assert say == '2 members are in the ring. <b class="crit">1 of 2 partitions unserved.</b>'
    assert part("ring", ownership=[], moves=[]) == ""
    assert "carts" in part("ring", ownership=owned, moves=[])

    series = {"step_s": 5, "ended_at": 1_000, "names": ["reads", "failed"], "columns": [[50, 5]]}
    marks = [{"at": 990.0, "letter": "A", "text": "n2 faulty", "numbers": [1]}]
    minutes = part("series", series=series, marks=marks)
    assert '<b class="crit">10 requests/s, 1 failed.</b>' in minutes
    assert "A: n2 faulty" in minutes


def colours() -> list[dict[str, str]]:
    """The colours by day, and those by night."""
    css = file_of("console.css").decode()
    day, night = (dict(re.findall(r"--([\w-]+): (#\w+)", each)) for each in css.split("@media")[:2])
    return [day, night]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("by", colours(), ids=["day", "night"])
def test_texts_and_marks_stand_out_as_wcag_asks(by: dict[str, str]) -> None:
    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(by[one]), luminance(by[other])))
        return (high + 0.05) / (low + 0.05)

    levels = ("ok", "warn", "crit", "info", "unk")
    for text in ("ink", "dim", *levels):
        assert min(contrast(text, "paper"), contrast(text, "card")) >= 4.5, text
    for level in levels:
        assert min(contrast(level, f"{level}-t"), contrast("ink", f"{level}-t")) >= 4.5, level
    assert contrast("edge", "card") >= 3
