"""What is told while a job runs."""

from __future__ import annotations

import io

import pytest

from ringpop_py.spark.pipeline.progress import Display, History, Reading, line_of, shares_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def history_of(*readings: Reading) -> History:
    history = History()
    for reading in readings:
        history.add(reading)
    return history


def test_a_line_says_what_is_known() -> None:
    reading = Reading(
        12.34, 336_776, 3, 5, 8, 1, applying=True, partitions={"node-1": 3, "node-2": 1}
    )

    assert line_of(reading, 41_234.5) == (
        "  12.3 s | 336,776 rows | 41,234 rows/s | 3 batches | tasks 5/8 | again 1"
        " | applying | node-1 75%  node-2 25%"
    )
    assert line_of(Reading(0.5), None) == "   0.5 s"
    assert "| 1 batch |" in line_of(Reading(1.0, 0, 1, 0, 1), None)


def test_many_owners_are_summed_up() -> None:
    text = shares_text({f"node-{i}": 10 if i < 5 else 5 for i in range(10)})

    assert text.startswith("node-0 13%")
    assert text.endswith("3 others 20%")


def test_a_rate_is_that_of_the_last_seconds() -> None:
    history = history_of(*(Reading(float(s), min(s, 20) * 100) for s in range(31)))

    assert history.rows_per_s == pytest.approx(0, abs=1)
    assert history_of(Reading(2.0, 500)).rows_per_s == 250
    assert history_of(Reading(2.0)).rows_per_s is None


def test_a_long_history_is_thinned_out_and_keeps_its_ends() -> None:
    history = History(samples_max=10)
    for second in range(1_000):
        history.add(Reading(float(second), second))

    kept = history.readings

    assert len(kept) <= 12
    assert (kept[0].at_s, kept[-1].at_s) == (0.0, 999.0)
    assert [reading.at_s for reading in kept] == sorted(reading.at_s for reading in kept)


def test_a_stream_that_is_not_a_terminal_gets_a_plain_line_for_each_news() -> None:
    stream = io.StringIO()
    display = Display(stream)

    display.show("1.0 s | 5 rows", news=5)
    display.show("2.0 s | 5 rows", news=5)
    display.show("3.0 s | 6 rows", news=6)
    display.note("done")

    assert stream.getvalue() == "1.0 s | 5 rows\n3.0 s | 6 rows\ndone\n"


def test_a_terminal_has_one_line_that_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    display = Display(stream)

    display.show("1.0 s | 5 rows", news=5)
    display.show("2.0 s | 5 rows", news=5)
    display.note("done")

    assert stream.getvalue() == "\r\x1b[2K1.0 s | …\r\x1b[2K2.0 s | …\r\x1b[2Kdone\n"


def test_a_quiet_display_has_notes_only() -> None:
    stream = io.StringIO()
    display = Display(stream, quiet=True)

    display.show("1.0 s | 5 rows", news=5)
    display.note("done")

    assert stream.getvalue() == "done\n"


def test_a_line_that_is_shown_for_a_while_goes_with_what_failed() -> None:
    stream = Terminal()
    display = Display(stream)

    with pytest.raises(RuntimeError), display.shown("starting"):
        raise RuntimeError

    assert stream.getvalue().endswith("starting\r\x1b[2K")
