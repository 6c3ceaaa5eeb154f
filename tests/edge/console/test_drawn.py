"""Charts, the matrix of paths, the ring of partitions, lanes: in each state of a cluster."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from ringpop_py.edge.console import charts, matrix, pictures, ringmap
from ringpop_py.edge.console.page import file_of
from ringpop_py.edge.console.svg import Finding, figure, letter, milliseconds, natural, some, tag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType


def _gallery() -> ModuleType:
    path = Path(__file__).with_name("gallery.py")
    spec = importlib.util.spec_from_file_location("gallery", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gallery = _gallery()
SCENES = gallery.scenes()
NOW = gallery.NOW


def element(text: str) -> ET.Element:
    return ET.fromstring(f"<div>{text}</div>")  # noqa: S314 - as above


def drawn(name: str, title: str) -> ET.Element:
    return element(gallery.drawn(SCENES[name])[title][1])


def size(text: str) -> int:
    return len(list(element(text).iter()))


# ---- All of them


@pytest.mark.parametrize("name", SCENES)
def test_every_picture_is_well_formed_and_bounded(name: str) -> None:
    for title, (findings, text) in gallery.drawn(SCENES[name]).items():
        assert size(text) < 420, title
        assert len(text) < 110_000, title
        assert "style=" not in text  # which the policy of the page forbids
        assert all(finding.level in ("ok", "info", "warn", "crit") for finding in findings)


def test_a_hostile_name_is_text_everywhere() -> None:
    for title, (_, text) in gallery.drawn(SCENES["hostile"]).items():
        assert "<script" not in text, title
        assert not element(text).findall(".//script"), title
    labels = drawn("hostile", "Who reaches whom").findall(".//text")
    assert [label.text for label in labels if "script" in (label.text or "")] == [
        "✕ …x\")</script>&|'",
        "…x\")</script>&|'",
    ]


@pytest.mark.parametrize("name", SCENES)
def test_every_class_of_a_picture_has_its_rule(name: str) -> None:
    style = file_of("pictures.css").decode()
    for _, text in gallery.drawn(SCENES[name]).values():
        for each in element(text).iter():
            for class_ in each.get("class", "").split():
                known = class_ in {"owned", "start", "reach", "alive", "on"}  # have no looks
                assert known or f".{class_}" in style, class_


def test_a_page_of_all_states_is_made(tmp_path: Path) -> None:
    page = gallery.page("dark")
    (tmp_path / "all.html").write_text(page, "utf-8")
    assert page.count("<h2>") == len(SCENES)


# ---- Elements, figures, names


def test_texts_and_attributes_are_escaped_and_elements_nest() -> None:
    inner = tag("b", '<&"')
    assert tag("p", inner, class_='"', data_x=None) == '<p class="&#34;"><b>&lt;&amp;&#34;</b></p>'


def test_names_are_sorted_as_people_count() -> None:
    names = ["n10", "n2", "n1", "10.0.0.9:1", "10.0.0.10:1", "a", "n02", "n" + "9" * 5_000]
    assert sorted(names, key=natural)[:6] == ["10.0.0.9:1", "10.0.0.10:1", "a", "n1", "n02", "n2"]
    assert some(["a", "b", "c", "d"]) == "a, b, c, d"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (0.25, "0.2"), (12.6, "13"), (1_204, "1,204"), (157_000, "157 k")],  # noqa: RUF001
)
def test_figures_are_short(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_milliseconds_have_their_unit() -> None:
    texts = [milliseconds(value) for value in (None, 0.0, 4.25, 42.4, 999, 2_340)]
    assert texts == ["–", "0.0 ms", "4.2 ms", "42 ms", "999 ms", "2.3 s"]  # noqa: RUF001


def test_letters_of_numbers_differ_and_need_no_escape() -> None:
    letters = [letter(number) for number in range(700)]
    assert len(set(letters)) == 700
    assert not set(letters) & set("<>&\"'\n\t ")


# ---- Ten minutes


def answer(*columns: Mapping[str, float | None], step_s: float = 5) -> dict[str, Any]:
    names = ["reads", "failed", "p50_ms", "p99_ms", "alive", "not_alive"]
    names += ["partitions_unserved", "partitions_moving"]
    rows = [[column.get(name) for name in names] for column in columns]
    return {"step_s": step_s, "ended_at": NOW, "names": names, "columns": rows}


def test_the_sentences_of_the_charts() -> None:
    well = {
        "reads": 6_020,
        "failed": 0,
        "p50_ms": 1.6,
        "p99_ms": 9,
        "partitions_unserved": 0,
        "partitions_moving": 0,
    }
    well |= {"alive": 5, "not_alive": 0}
    bad = {**well, "failed": 50, "alive": 3, "not_alive": 2}
    bad |= {"partitions_unserved": 3, "partitions_moving": 4}
    now, later = answer(well, *[bad] * 8), answer(bad, well)

    assert charts.requests_finding(now) == Finding("crit", "1,204 requests/s, 10 failed")
    assert charts.requests_finding(later) == ("ok", "1,204 requests/s, 0 failed; 50 in 10 min")
    assert charts.requests_finding(answer(well)).text == "1,204 requests/s, 0 failed"
    assert charts.latency_finding(now) == ("ok", "p50 1.6 ms, p99 9.0 ms")
    assert charts.members_finding(now) == ("warn", "2 of 5 not alive for 40 s")
    assert charts.members_finding(answer(*[bad] * 3)).text == "2 of 5 not alive for at least 15 s"
    assert charts.members_finding(later) == ("ok", "All 5 alive")
    text = "3 partitions unserved for 40 s; 4 on their way"
    assert charts.partitions_finding(now) == ("crit", text)
    text = "All partitions are served; 4 on their way"
    assert charts.partitions_finding(answer({**well, "partitions_moving": 4})) == ("info", text)
    assert charts.partitions_finding(later) == ("ok", "All partitions are served")


def test_what_is_not_known_is_said() -> None:
    for empty in (answer(), answer({})):
        assert charts.requests_finding(empty) == ("info", "No data yet")
        assert charts.latency_finding(empty) == ("ok", "No request has ended in the last 5 s")
        assert charts.members_finding(empty) == ("info", "No data yet")
        assert charts.partitions_finding(empty) == ("info", "No data yet")
        picture = element(charts.ten_minutes(empty, (), gallery.clock))
        texts = [text.text for text in picture.iter("text")]
        assert texts.count("no data yet") == 4
    quiet = element(
        charts.ten_minutes(
            answer({"partitions_unserved": 0, "partitions_moving": 0}), (), gallery.clock
        )
    )
    texts = [text.text for text in quiet.iter("text")]
    assert texts.count("none in these 10 min") == 1


def test_a_gap_divides_a_line_and_a_short_buffer_ends_now() -> None:
    columns: list[dict[str, float | None]] = [{"p50_ms": 1}, {"p50_ms": None}, {"p50_ms": 10}]
    picture = element(charts.ten_minutes(answer(*columns), (), gallery.clock))
    [line] = [path for path in picture.iter("path") if path.get("class") == "line mid"]
    first, second = (line.get("d") or "").split("M")[1:]
    assert [first.split()[0], first.split()[-2]] == ["117", "118"]
    assert [second.split()[0], second.split()[-2]] == ["119", "120"]
    assert first.split()[1] > second.split()[1]  # more milliseconds are higher
    marks = [span for span in picture.iter("span") if (span.find("i") is not None)]
    [p50] = [mark for mark in marks if (mark[0].tail or "").startswith("p50")]
    assert (p50[1].get("data-values") or "").split("|")[-3:] == ["1.0 ms", "–", "10 ms"]  # noqa: RUF001


def test_areas_pile_up_and_counts_are_per_second() -> None:
    both = charts.minutes_of(
        {"step_s": 5, "ended_at": NOW, "names": ["reads", "writes"], "columns": [[10, 20]] * 130}
    )
    assert (both.rates("reads"), both.rates("writes")) == ([2.0] * 120, [4.0] * 120)
    assert both.of("of a newer version") == [None] * 120


def test_letters_of_events_stand_at_their_time_and_near_ones_share_a_label() -> None:
    events = [
        {"at": NOW - ago, "letter": key, "text": f"<{key}>"}
        for ago, key in ((300, "A"), (295, "B"), (0, "C"), (700, "D"))
    ]
    picture = element(charts.ten_minutes(SCENES["healthy"].series, events, gallery.clock))
    plot = next(svg for svg in picture.iter("svg") if svg.get("class") == "pic plot")
    marks = [line for line in plot.iter("line") if line.get("class") == "event"]
    assert [mark[0].text for mark in marks] == ["A: <A>", "B: <B>", "C: <C>"]
    assert [marks[0].get("x1"), marks[2].get("x1")] == ["58.00%", "100.00%"]
    assert {"A B", "C"} <= {text.text for text in plot.iter("text")}


def test_each_read_out_has_a_text_for_each_column() -> None:
    picture = drawn("killed", "The last ten minutes")
    lists = [each.get("data-values") for each in picture.iter() if each.get("data-values")]
    assert len(lists) == 1 + 4 + 12
    assert {len((values or "").split("|")) for values in lists} == {120}


# ---- Who reaches whom


def paths(count: int, dead: str = "", /, **cells: dict[str, Any]) -> matrix.Paths:
    """Return paths that work, besides *cells*: of ``n1_n2``, what differs."""
    names = [f"n{number}" for number in range(1, count + 1)]
    well = {"ms": 2.0, "lost": 0.0, "failure": "", "tcp": ""}
    said = {a: {b: {**well, **cells.get(f"{a}_{b}", {})} for b in names if a != b} for a in names}
    return matrix.paths_of(names, said, dead.split(), {})


def between(
    ones: tuple[int, ...], others: tuple[int, ...], cell: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    pairs = [(a, b) for a in ones for b in others]
    return {f"n{a}_n{b}": cell for a, b in (*pairs, *((b, a) for a, b in pairs))}


FAILED = {"failure": "timeout", "lost": 1.0, "tcp": "silent"}
LOSSY = {"lost": 0.3}


@pytest.mark.parametrize(
    ("seen", "level", "text"),
    [
        (paths(1), "ok", "Nobody else is here"),
        (paths(5, n2_n3={"ms": 4.1}), "ok", "All 20 paths work; the slowest takes 4.1 ms"),
        (paths(5, "n4"), "crit", "Nobody reaches n4; all 12 other paths work"),
        (paths(5, "n4 n5"), "crit", "Nobody reaches n4, n5; all 6 other paths work"),
        (paths(2, "n2"), "crit", "Nobody reaches n2"),
        (
            paths(3, n1_n3=FAILED, n2_n3=FAILED),
            "crit",
            "Nobody reaches n3; both other paths work",
        ),
        (
            paths(5, "n4", n1_n2=FAILED),
            "crit",
            "Nobody reaches n4; 1 of 12 other paths fails",
        ),
        (paths(4, **between((1, 2), (3, 4), FAILED)), "crit", "Two sides: n1, n2 | n3, n4"),
        (paths(5, "n5", **between((1, 2), (3, 4), FAILED)), "crit", "Two sides: n1, n2 | n3, n4"),
        (paths(5, n2_n3=FAILED), "crit", "n2 does not reach n3; all 19 other paths work"),
        (paths(4, n1_n3=FAILED, n2_n3=FAILED, n1_n2=FAILED), "crit", "3 of 12 paths fail"),
        (
            paths(5, **between((3,), (1, 2, 4, 5), LOSSY)),
            "warn",
            "30 % of the pings between n3 and all others are lost",
        ),
        (paths(2, n1_n2=LOSSY, n2_n1=LOSSY), "warn", "30 % of all pings are lost"),
        (paths(5, n1_n2=LOSSY), "warn", "30 % of the pings from n1 to n2 are lost"),
        (
            paths(5, n1_n2=LOSSY, n3_n4=LOSSY),
            "warn",
            "30 % of the pings on 2 of 20 paths are lost",
        ),
        (paths(5, n1_n2={"ms": 240.0}), "warn", "n1 → n2 takes 240 ms"),
        (
            paths(5, n1_n2={"ms": 240.0}, n1_n3={"ms": 100.0}),
            "warn",
            "2 of 20 paths take 100 ms or more; the slowest takes 240 ms",
        ),
        (
            paths(3, n1_n2={"ms": None}),
            "ok",
            "5 of 6 paths work, 1 is not known yet; the slowest takes 2.0 ms",
        ),
        (paths(2, n1_n2={"ms": None}, n2_n1={"ms": None}), "info", "No ping has ended yet"),
    ],
)
def test_the_sentence_of_the_paths(seen: matrix.Paths, level: str, text: str) -> None:
    assert matrix.paths_finding(seen) == Finding(level, text)


def test_a_path_that_loses_pings_and_whose_last_one_failed_still_loses_them() -> None:
    last_failed = {**LOSSY, "failure": "timeout"}
    loses, fails = matrix.LOSES, matrix.FAILS
    for tcp, state in (("accepted", loses), ("", loses), ("refused", fails), ("silent", fails)):
        assert paths(2, n1_n2={**last_failed, "tcp": tcp}).rows[0] == f"{matrix.SELF}{state}"
    once = {"failure": "timeout", "lost": 0.02, "tcp": "accepted"}
    assert paths(2, n1_n2=once).rows[0] == f"{matrix.SELF}{fails}"


def test_a_dead_member_keeps_its_column_and_its_row() -> None:
    seen = paths(3, "n2")
    well, fails, silent = matrix.WELL, matrix.FAILS, matrix.SILENT
    assert seen.rows == (f".{fails}{well}", f"{silent}.{silent}", f"{well}{fails}.")
    picture = element(matrix.matrix(seen))
    shapes = {path.get("class"): path.get("d") for path in picture.iter("path")}
    assert shapes["fails"] == "M1 0.5h1M1 2.5h1"
    [hatched] = [path for path in picture.iter("path") if path.get("fill") == "url(#silent)"]
    assert (hatched.get("d") or "").count("z") == 2  # around itself
    names = [text.text for text in picture.iter("text") if "gone" in (text.get("class") or "")]
    assert names == ["✕ n2", "n2"]


def read_out(picture: ET.Element) -> list[str]:
    """Return the text of each cell, as the script reads them."""
    square = next(svg for svg in picture.iter("svg") if svg.get("class") == "pic square")
    words = (square.get("data-words") or "").split("|")
    codes = map(ord, square.get("data-cells") or "")
    return [words[code - 63 if code < 0x100 else code - 0x100 + 64] for code in codes]


def test_every_cell_is_read_out() -> None:
    gone = {"failure": "timeout", "lost": 1.0, "tcp": "refused", "ms": None}
    seen = paths(3, "n3", n1_n2={"ms": 12.4, "lost": 0.25}, n1_n3=gone, n2_n1={"ms": None})
    assert read_out(element(matrix.matrix(seen))) == [
        "itself",
        "25 % of the last pings are lost, 12 ms",
        "✕ fails: timeout; TCP is refused: the process is gone",
        "no ping yet",
        "itself",
        "✕ fails: no answer",
        *["no figures, as the sender does not answer"] * 2,
        "itself",
    ]


def test_zones_stand_side_by_side_with_a_line_between_them() -> None:
    names, zones = ["n1", "n2", "n3", "n10"], {"n1": "b", "n2": "a", "n3": "b", "n10": "a"}
    seen = matrix.paths_of(names, {}, (), zones, by_zone=True)
    assert seen.names == ("n2", "n10", "n1", "n3")
    picture = element(matrix.matrix(seen))
    [border] = [path for path in picture.iter("path") if path.get("class") == "border"]
    assert (border.get("d") or "").count("M") == 2
    assert matrix.paths_of(names, {}, (), zones).names == ("n1", "n2", "n3", "n10")


@pytest.mark.parametrize("name", ["hundred members", "hundred members, one dead"])
def test_a_hundred_members_take_few_bytes_besides_names_and_what_is_read_out(name: str) -> None:
    picture = drawn(name, "Who reaches whom")
    square = next(svg for svg in picture.iter("svg") if svg.get("class") == "pic square")
    for kept in ("data-names", "data-words", "data-cells", "aria-label"):
        square.set(kept, "")
    labels = [each for each in square if each.tag == "text"]
    for label in labels:
        square.remove(label)
    assert len(labels) <= 60
    assert len(list(square.iter())) <= 16
    assert len(ET.tostring(square, "unicode")) <= 4_500
    assert len(read_out(drawn(name, "Who reaches whom"))) == 10_000


def test_more_than_a_hundred_members_are_grouped_and_the_worst_path_of_a_group_shows() -> None:
    picture = drawn("250 members, one dead", "Who reaches whom")
    square = next(svg for svg in picture.iter("svg") if svg.get("class") == "pic square")
    labels = (square.get("data-names") or "").split("|")
    assert (len(labels), labels[0], labels[-1]) == (84, "n1 … n3", "n250")
    column = labels.index("n40 … n42")
    texts = read_out(picture)
    assert {texts[84 * row + column] for row in range(84)} == {"✕ fails, the worst of these paths"}
    assert len(set(texts)) <= 4


# ---- Partitions


def test_the_sentence_of_the_partitions() -> None:
    owned = ringmap.Owned
    well, bad = owned("a", [0] * 4, "ssss"), owned("b", [0, -1, 1, 1], "sums")
    assert ringmap.ownership_finding([]) == ("ok", "There are no keyspaces")
    assert ringmap.ownership_finding([well]) == ("ok", "All 4 partitions are served")
    moves = ringmap.ownership_finding([owned("c", [0], "m")])
    assert moves == ("info", "All 1 partitions are served; 1 on their way")
    text = "1 of 8 partitions unserved; 1 on their way"
    assert ringmap.ownership_finding([well, bad]) == ("crit", text)
    assert ringmap.worst_of([well, bad]) == bad
    assert ringmap.worst_of([]) is None


def lengths(dashes: str, count: int) -> str:
    """Return for each mark whether a dash begins at its place."""
    found, at = ["-"] * count, 0.0
    values = [float(value) for value in dashes.split()]
    for number, value in enumerate(values):
        if number % 2 == 0 and value:
            assert value == 1 - ringmap.GAP
            found[round(at)] = "x"
        at += value
    assert at == pytest.approx(count)
    return "".join(found)


@pytest.mark.parametrize("states", ["sumssu", "usmms", "s", "mmmu", "ssssssmsssss"])
def test_each_mark_is_drawn_once_at_its_place(states: str) -> None:
    picture = element(ringmap.ring(ringmap.Owned("k", [0] * len(states), states)))
    names = {"served": "s", "moving": "m", "unserved": "u"}
    circles = [each for each in picture.iter("circle") if each.get("class") in names]
    assert {names[each.get("class") or ""] for each in circles} == set(states)
    for circle in circles:
        mine = "".join("x" if s == names[circle.get("class") or ""] else "-" for s in states)
        dashes = circle.get("stroke-dasharray") or ""
        if len(set(states)) == 1:
            assert dashes == f"{1 - ringmap.GAP:g} {ringmap.GAP}"
        else:
            assert lengths(dashes, len(states)) == mine
        assert circle.get("pathLength") == str(len(states))


def test_with_many_partitions_a_mark_stands_for_several_and_shows_the_worst() -> None:
    states = "s" * 1_023 + "u"
    picture = element(ringmap.ring(ringmap.Owned("k", [5] * 1_023 + [-1], states)))
    circles = {each.get("class"): each for each in picture.iter("circle")}
    assert circles["unserved"].get("pathLength") == "256"
    note = picture.find(".//p")
    assert note is not None
    assert note.text == "A mark stands for 4 partitions; a long red one is unserved."
    ring = picture.find(".//svg")
    assert ring is not None
    assert ring.get("data-owners") == letter(6) * 1_023 + letter(0)
    assert circles["pointed"].get("pathLength") == "1024"


def test_bars_have_a_place_per_member_and_a_dead_one_leaves_a_cross() -> None:
    members = SCENES["killed"].members
    for metric in ringmap.METRICS:
        picture = element(ringmap.bars(members, metric))
        [bar] = [path for path in picture.iter("path") if path.get("class") == "bar"]
        assert re.findall(r"M(\d)", bar.get("d") or "") == ["0", "1", "2", "4"]
        texts = [text.text for text in picture.iter("text")]
        assert texts.count("✕") == 1
        assert set(texts) >= {"n1", "n2", "n3", "n4", "n5"}
        assert ringmap.METRICS[metric].title in "".join(picture.itertext())
    all_ = element(ringmap.all_bars(members))[0]
    assert [figure.get("data-metric") for figure in all_] == list(ringmap.METRICS)
    words = (all_.get("data-words") or "").split("|")
    assert (len(words), words[3]) == (5, "n4: ✕ does not answer")


def test_bars_without_figures_and_members_are_no_error() -> None:
    unknown = [{**member, "p99_ms": None} for member in SCENES["killed"].members]
    assert "the mean, –" in ringmap.bars(unknown, "p99")  # noqa: RUF001
    assert "Nobody is here." in ringmap.bars([], "share")


# ---- Lanes


def test_a_lane_says_how_long_a_member_was_what() -> None:
    line = SCENES["killed"].line
    picture = element(pictures.lanes(line, [{"at": NOW - 200, "letter": "A", "text": "x"}]))
    bars = list(picture.iter("rect"))
    assert [bar.get("class") for bar in bars] == ["span alive", "span suspect", "span faulty"]
    heights = [float(bar.get("height") or 0) for bar in bars]
    assert heights == sorted(heights)
    assert bars[2][0].text == "n4 faulty: accused <by> n2"
    assert [link.get("href") for link in picture.iter("a")] == ["#event-1", "#event-2"]
    assert len([each for each in picture.iter("line") if each.get("class") == "event"]) == 1
    assert pictures.lanes_finding(line) == ("ok", "1 member changed in the last 5 min")


def test_without_changes_there_is_a_sentence() -> None:
    quiet = pictures.timeline([], NOW)
    assert pictures.lanes_finding(quiet) == ("ok", "No member has changed its status")
    assert "Every member kept its status." in pictures.lanes(quiet)
