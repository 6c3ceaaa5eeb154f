"""A plan as text says exactly what the plan says, and a wrong text is told what is wrong."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringpop_sim.errors import PlanError
from ringpop_sim.plans import plan as p
from ringpop_sim.plans.planfile import parse_plan, plan_text, read_plan
from ringpop_sim.units import hours, minutes, ms, s

if TYPE_CHECKING:
    from pathlib import Path

NODES = 9
nodes = st.lists(st.integers(0, NODES - 1), min_size=1, max_size=4, unique=True).map(tuple)
shares = st.floats(0, 1)
instants = st.integers(0, 50 * s)
delays = st.builds(
    lambda kind, low, more: p.Delay(kind, low, low + more),
    st.sampled_from(["uniform", "exponential", "long-tail"]),
    st.integers(0, s),
    st.integers(0, s),
)
links = st.builds(p.Link, loss=shares, delay=delays, duplicate=shares, corrupt=shares)
traffics = st.builds(
    p.Traffic,
    keys=st.integers(1, 10**6),
    per_second=st.floats(0.001, 1000),
    from_us=instants,
    retry_schedule_us=st.lists(instants, max_size=3).map(tuple),
    idempotent=st.booleans(),
    consistency=st.sampled_from(["keys", "checksum", "none"]),
)
OF_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "clock_us": st.integers(-hours, hours),
    "drift_ppm": st.integers(-1000, 1000),
    "memory": st.sampled_from(["lost", "kept"]),
    "status": st.sampled_from(["alive", "suspect", "faulty", "leave", "tombstone"]),
    "about": st.integers(0, NODES - 1),
    "beside": st.none() | st.integers(0, NODES - 1),
    "cluster": st.sampled_from(["", "another"]),
    "strangers": st.integers(0, 5),
    "lie": st.sampled_from(get_args(p.Lies)),
    "how": st.sampled_from(get_args(p.StoreTrouble)),
}


def values_of(kind: type[p.Operation], name: str) -> st.SearchStrategy[Any]:
    if kind is p.FailShuffler and name == "how":
        return st.sampled_from(get_args(p.ShufflerTrouble))
    if name in OF_FIELDS:
        return OF_FIELDS[name]
    if name.endswith("_us"):
        return instants
    if name.startswith(("loss", "duplicate", "corrupt")):
        return shares
    return nodes if name in ("nodes", "left", "right", "listed") else st.booleans()


operations = st.one_of(
    *(
        st.builds(kind, **{f.name: values_of(kind, f.name) for f in fields(kind)})
        for kind in p.OPERATIONS.values()
    )
)
plans = st.builds(
    p.Plan,
    name=st.text(st.characters(codec="utf-8"), max_size=20),
    about=st.text(st.characters(codec="utf-8"), max_size=20),
    nodes=st.just(NODES),
    expect=st.sampled_from([(), ("deaths 0-2 == 0", "converged_s <= 2.5")]),
    until_us=st.integers(50 * s, 100 * s),
    dialect=st.sampled_from(["native", "ringpop"]),
    preset=st.sampled_from(["lan", "wan", "local", "ringpop"]),
    settings=st.sampled_from([(), (("suspect_s", 1.5), ("heal_share", 2), ("damping", False))]),
    link=links,
    codec_share=shares,
    traffic=st.none() | traffics,
    keyspace=st.just(p.KeyspacePlan()),  # without these, some operations have no effect
    shuffle=st.just(p.ShufflePlan()),
    operations=st.lists(operations, max_size=5).map(tuple),
)


@given(plans)
def test_a_written_plan_is_read_as_the_same_plan(plan: p.Plan) -> None:
    text = plan_text(plan)

    assert parse_plan(text) == plan


def test_a_plan_is_written_in_seconds_and_without_what_is_as_usual() -> None:
    cut = p.Cut(at_us=1500 * ms, for_us=40 * s, left=(0,), right=(1, 2), one_way=True)
    link = p.Link(loss=0.05, delay=p.exponential(5 * ms))
    plan = p.Plan(name="split", nodes=3, until_us=minutes * 2, link=link, operations=(cut,))

    assert plan_text(plan) == (
        'name = "split"\nnodes = 3\nuntil_s = 120\n\n'
        '[link]\nloss = 0.05\ndelay = { kind = "exponential", low_s = 0, high_s = 0.005 }\n\n'
        '[[do]]\nkind = "cut"\nat_s = 1.5\nfor_s = 40\nleft = [0]\nright = [1, 2]\n'
        "one_way = true\n"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes = ", "x.toml: this is not TOML"),
        ("nodes = '8'", "x.toml: nodes: must be a whole number, not '8'"),
        ("nodes = true", "nodes: must be a whole number, not True"),
        ("nodes = 0", "x.toml: a plan has 1 to 20000 nodes, not 0"),
        ("until_us = 5", "there is no 'until_us' here; there is name, about, nodes, until_s"),
        ("until_s = 0.0000001", "until_s: must be a number of seconds, exact to the microsecond"),
        ("until_s = nan", "until_s: must be a number of seconds"),
        ("until_s = 1e999999999", "until_s: must be a number of seconds"),
        ("codec_share = inf", "codec_share: must be a number, not Infinity"),
        ("dialect = 'old'", "dialect: must be 'native' or 'ringpop', not 'old'"),
        ("preset = 'moon'", "x.toml: preset must be one of local, lan, wan, ringpop"),
        ("link = 3", "link: must be a table, not 3"),
        ("[link]\nloss = 2", "x.toml: link: loss must be from 0 to 1, not 2.0"),
        ("[settings]\nsuspect_s = -1.5", "x.toml: suspect_s is a number above 0"),
        ("[settings]\nsuspects = 1", "x.toml: no such setting: suspects"),
        ("[traffic]\nretry_schedule_s = [0, '1']", "retry_schedule_s: must be a number of seconds"),
        ("do = 3", "operations must be tables, each under [[do]]"),
        ("[[do]]\nat_s = 1", "x.toml: operation 0: kind is missing; it must be one of cut, impair"),
        ("[[do]]\nkind = 'split'", "operation 0: kind must be one of cut, impair"),
        ("[[do]]\nkind = 'pause'\nat_s = 1", "operation 0 (pause): nodes is missing"),
        ("[[do]]\nkind = 'pause'\nat_s = 1\nnodes = 1", "(pause): nodes: must be a list, not 1"),
        ("[[do]]\nkind = 'pause'\nat_s = 1\nnodes = [9]", "operation 0 (pause): there is no node"),
        ("[[do]]\nkind = 'store'\nat_s = 1", "only in plans with a keyspace or shuffle"),
        (
            "[[do]]\nkind = 'pause'\nat_s = -1\nnodes = [1]",
            "pause: at_us must be 0 or more",
        ),
        (
            "[[do]]\nkind = 'rumour'\nat_s = 1\nnodes = [1]\nabout = 2\nstatus = 'x'",
            "status must be",
        ),
    ],
)
def test_a_wrong_plan_is_refused_with_where_and_what(text: str, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_plan(text, "x.toml")

    assert str(caught.value).startswith("x.toml: ")
    assert said in str(caught.value)


def test_a_plan_that_is_not_there_is_a_wrong_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        read_plan(tmp_path / "none.toml")


def test_bytes_that_are_no_text_are_a_wrong_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"name = '\xff'")

    with pytest.raises(PlanError, match="UTF-8"):
        read_plan(path)
