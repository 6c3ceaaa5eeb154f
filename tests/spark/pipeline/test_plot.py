"""The page that shows how a job went."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from ringpop_py.base.errors import ConfigError
from ringpop_py.spark.pipeline.plot import check_page, plot_page, write_page
from ringpop_py.spark.pipeline.progress import Reading

if TYPE_CHECKING:
    from pathlib import Path

READINGS = [
    Reading(0.0),
    Reading(1.0, 1_000, partitions={"a": 2, "b": 2}),
    Reading(4.0, 3_000, partitions={"b": 4}),
]


def drawing_in(page: str) -> ET.Element:
    found = re.search(r"<svg.*</svg>", page, re.DOTALL)
    assert found is not None
    return ET.fromstring(found[0])  # noqa: S314 - we have just made it


def points_of(element: ET.Element) -> list[tuple[float, float]]:
    pairs = (pair.split(",") for pair in element.attrib["points"].split())
    return [(float(x), float(y)) for x, y in pairs]


def test_rows_rise_with_time_and_bands_share_the_height() -> None:
    drawing = drawing_in(plot_page("flights", "done", READINGS, [(2.0, "kill -9 a")]))

    (line, rates) = drawing.iter("polyline")
    (first, last) = points_of(line)
    assert first[0] < last[0]
    assert first[1] > last[1]
    heights = [
        max(ys) - min(ys)
        for band in drawing.iter("polygon")
        for ys in [[y for x, y in points_of(band) if x == last[0]]]
    ]
    # Where a node goes, its band goes up to the moment when others had its share.
    assert heights == [80.0, 160.0]
    # 1,000 rows in the first second, then 2,000 in three: a step down.
    steps = points_of(rates)
    assert [y for _, y in steps] == [250.0, 250.0, 280.0, 280.0]
    assert steps[1][0] == steps[2][0] < steps[3][0] == last[0]
    texts = [text.text for text in drawing.iter("text")]
    assert {"a", "b", "kill -9 a", "3,000", "100 %", "4 s"} <= set(texts)


def test_texts_on_the_page_are_not_markup() -> None:
    page = plot_page("<b>", "a & b", [Reading(1.0, 1, partitions={"<i>": 1})], [(0.5, "<u>")])

    assert "<b>" not in page
    assert "a &amp; b" in page
    assert {"<i>", "<u>"} <= {text.text for text in drawing_in(page).iter("text")}


def test_a_job_of_which_nothing_is_known_has_a_page_as_well() -> None:
    drawing = drawing_in(plot_page("nothing", "", []))

    assert list(drawing.iter("polygon")) == []


def test_the_times_stand_below_with_bars_as_long_as_their_share() -> None:
    page = plot_page("flights", "done", READINGS, times={"read": 4.0, "apply": 1.0, "<b>": 2.0})

    assert re.findall(r'"seconds">([^<]+)<.*width:([0-9.]+)%', page) == [
        ("4.0 s", "100.0"),
        ("1.0 s", "25.0"),
        ("2.0 s", "50.0"),
    ]
    assert "owners apply them" in page
    assert "<b>" not in page
    assert "Where the time went" not in plot_page("flights", "done", READINGS)


def test_a_page_is_written_or_told_to_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "page.html"

    assert write_page(file, "é") == f"plot: {file}"
    assert file.read_text("utf-8") == "é"
    assert write_page(tmp_path, "é") == f"plot: not written to {tmp_path}: Is a directory"


def test_a_file_that_can_be_written_stays_as_it_is_until_then(tmp_path: Path) -> None:
    old, new = tmp_path / "old.html", tmp_path / "new.html"
    old.write_text("before")

    check_page(old)
    check_page(new)

    assert old.read_text() == "before"
    assert not new.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^--plot {tmp_path}/no/page.html: No such file"):
        check_page(tmp_path / "no" / "page.html")
