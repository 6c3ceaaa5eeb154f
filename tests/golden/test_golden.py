"""Messages are written and read as they were when `python -m tests.golden --record` ran."""

from __future__ import annotations

import pytest

from tests.golden.recording import BYTES, VERDICTS, bytes_now, recorded, verdicts_now
from tests.golden.samples import KINDS

RECORDED = recorded(BYTES)
SAMPLES = [(name, sample) for name, kind in KINDS.items() for sample in kind.samples]


def test_each_sample_is_recorded_and_nothing_else() -> None:
    assert RECORDED.keys() == {f"{name} {sample}" for name, sample in SAMPLES}


def test_each_sample_is_written_in_the_bytes_that_were_recorded() -> None:
    now = bytes_now()

    assert {name for name in now if now[name] != RECORDED[name]} == set()


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_the_recorded_bytes_are_read_as_the_sample(name: str, sample: str) -> None:
    kind = KINDS[name]

    found = kind.decode(bytes.fromhex(RECORDED[f"{name} {sample}"]))

    # As text, for that tells 1 from True, and errors with the same message are equal.
    assert repr(found) == repr(kind.samples[sample])


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.scheme])
def test_malformed_bytes_are_refused_or_read_as_recorded(name: str) -> None:
    kind = KINDS[name]
    body = bytes.fromhex(RECORDED[f"{name} {list(kind.samples)[-1]}"])

    now = verdicts_now(name, body)

    said = {place: s for place, s in recorded(VERDICTS).items() if place.split(" ")[0] == name}
    assert now == said
