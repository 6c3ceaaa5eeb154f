"""`ringpop_py.state.placement.gossip`: the tables of keyspaces become the same on all nodes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ringpop_py.base.values.packed import encode_value
from ringpop_py.state.placement import gossip as gossiping
from ringpop_py.state.placement.definition import Definition
from ringpop_py.state.placement.gossip import GATHER_US, PERIOD_US, PUSHED_TO_MAX, GossipAsk, Known
from ringpop_py.state.placement.table import Table
from tests.state.placement.gossiping import SECOND, Gossiper, Network

NAMES = "abcdefghijkl"
AGREED_AFTER_S = 30
"""The most seconds (rounds of pings) in which a dozen nodes agree once nothing is lost."""
RESTED_AFTER_S = 40
"""The most seconds after which they have no difference left to look at."""


def two_that_differ() -> tuple[Gossiper, Gossiper]:
    """Nodes that know one keyspace; *a* knows a claim that *b* does not."""
    a, b = Gossiper("a", ["b"]), Gossiper("b", ["a"])
    for node in (a, b):
        node.create("counts")
    a.claim("counts", 3)
    return a, b


def turn_of(node: Gossiper, other: Gossiper, now: int = 0) -> list[GossipAsk]:
    node.gossip.differs(other.name, other.gossip.digest)
    return node.gossip.advance(now)


def answered(
    node: Gossiper, peer: Gossiper, asks: list[GossipAsk], now: int = 0
) -> list[GossipAsk]:
    (ask,) = asks
    return node.gossip.done(ask.token, peer.gossip.heard(ask.body), now)


# Pushing.


def test_rows_of_one_moment_share_a_push() -> None:
    a, b = Gossiper("a", ["b"]), Gossiper("b", ["a"])
    a.create("counts")
    for partition in range(3):
        a.gossip.spread("counts", 1, [a.claim("counts", partition)], partition)

    assert a.gossip.next_deadline == GATHER_US
    assert a.gossip.advance(GATHER_US - 1) == []
    (push,) = a.gossip.advance(GATHER_US)
    b.gossip.heard(push.body)

    assert b.facts() == a.facts()
    assert a.gossip.next_deadline is None


def test_a_push_goes_to_a_limited_number_of_members() -> None:
    a = Gossiper("a", [f"m{number:02}" for number in range(100)])
    a.create("counts")
    a.gossip.spread("counts", 1, [], 0)

    assert len({push.to for push in a.gossip.advance(GATHER_US)}) == PUSHED_TO_MAX


def test_rows_of_an_older_generation_are_not_pushed() -> None:
    a = Gossiper("a", ["b"])
    a.create("counts")
    a.gossip.spread("counts", 1, [a.claim("counts", 0)], 0)
    a.create("counts", generation=2)

    assert a.gossip.advance(GATHER_US) == []


# Comparing.


def test_a_comparison_ends_with_the_rows_that_the_peer_lacks() -> None:
    a, b = two_that_differ()

    fingerprints = answered(a, b, turn_of(a, b))
    rows = answered(a, b, fingerprints)

    assert repr(a.gossip).endswith("0 rows to push, calls: b rows>")
    assert answered(a, b, rows) == []
    assert b.facts() == a.facts()


def test_an_answer_that_comes_too_late_or_again_is_ignored() -> None:
    a, b = two_that_differ()
    (ask,) = turn_of(a, b)
    answer = b.gossip.heard(ask.body)

    (following,) = a.gossip.done(ask.token, answer, 0)
    assert a.gossip.done(ask.token, answer, 0) == []
    assert a.gossip.done(following.token, None, 0) == []
    assert a.gossip.done(following.token, b.gossip.heard(following.body), 0) == []


@pytest.mark.parametrize(
    "answer", [None, b"", b"\xc1", encode_value("msgpack", [[], ["x"], 7, ""])]
)
def test_a_malformed_answer_ends_the_comparison_and_the_next_ping_begins_another(
    answer: bytes | None,
) -> None:
    a, b = two_that_differ()
    (ask,) = turn_of(a, b)

    assert a.gossip.done(ask.token, answer, SECOND) == []
    assert turn_of(a, b, SECOND + PERIOD_US - 1) == []
    assert len(turn_of(a, b, SECOND + PERIOD_US)) == 1


def test_there_is_one_comparison_at_a_time_with_the_last_that_differed() -> None:
    a, b = two_that_differ()
    asks = turn_of(a, b)
    a.gossip.differs("c", 1)
    a.gossip.differs("d", 1)

    assert a.gossip.next_deadline is None
    (ask,) = asks
    a.gossip.done(ask.token, None, 5)
    assert a.gossip.next_deadline == 5 + PERIOD_US
    (ask,) = a.gossip.advance(5 + PERIOD_US)
    assert ask.to == "d"


def test_a_bug_of_the_node_ends_one_comparison_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = two_that_differ()
    (ask,) = answered(b, a, turn_of(b, a))
    answer = a.gossip.heard(ask.body)
    with monkeypatch.context() as patch:
        patch.delattr(Table, "merge")
        with pytest.raises(AttributeError):
            b.gossip.done(ask.token, answer, 0)

    fingerprints = answered(b, a, turn_of(b, a, PERIOD_US), PERIOD_US)
    answered(b, a, fingerprints, PERIOD_US)

    assert b.facts() == a.facts()


def test_a_question_goes_to_three_others_and_is_over_when_nothing_follows() -> None:
    a, b = two_that_differ()
    b.others = ["c", "d", "e", "f"]
    assert len({ask.to for ask in b.gossip.ask()}) == 3
    b.others = ["a"]

    asks = b.gossip.ask()
    while asks:
        asks = answered(b, a, asks)

    assert b.facts() == a.facts()
    assert Gossiper("alone").gossip.ask() == []


def test_without_digests_in_pings_there_is_a_comparison_each_period() -> None:
    a, b = Gossiper("a", ["b"], every_us=10 * SECOND), Gossiper("b", ["a"])
    a.gossip.start(5)
    assert a.gossip.next_deadline == 5 + 10 * SECOND

    assert a.gossip.advance(5 + 10 * SECOND) == []  # there is nothing to compare
    b.create("counts")
    a.create("counts")
    (ask,) = a.gossip.advance(5 + 20 * SECOND)
    a.gossip.done(ask.token, b.gossip.heard(ask.body), 21 * SECOND)

    assert a.gossip.next_deadline == 31 * SECOND


@pytest.mark.parametrize("pushed", [True, False])
def test_a_revision_of_a_definition_is_learnt_with_all_rows_kept(*, pushed: bool) -> None:
    a, b = Gossiper("a", ["b"]), Gossiper("b", ["a"])
    for node in (a, b):
        node.create("counts")
    b.learn_rows("counts", [a.claim("counts", 3)])
    a.learn_keyspace(a.known()["counts"].definition.revised(2), 1, dropped=False)

    if pushed:
        a.gossip.spread("counts", 1, [], 0)
        b.gossip.heard(a.gossip.advance(GATHER_US)[0].body)
    else:
        answered(b, a, turn_of(b, a))

    definition = b.known()["counts"].definition
    assert (definition.min_cluster_size, definition.revision) == (2, 1)
    assert a.gossip.digest == b.gossip.digest
    b.check()


def test_a_revision_that_is_older_changes_nothing() -> None:
    a, b = Gossiper("a", ["b"]), Gossiper("b", ["a"])
    for node in (a, b):
        node.create("counts")
    revised = b.known()["counts"].definition.revised(2)
    b.learn_keyspace(revised, 1, dropped=False)

    a.gossip.spread("counts", 1, [], 0)
    b.gossip.heard(a.gossip.advance(GATHER_US)[0].body)

    assert b.known()["counts"].definition == revised


def dropped(node: Gossiper) -> bool:
    return node.known()["counts"].dropped


def test_a_drop_changes_the_digest_though_there_are_no_rows() -> None:
    definition = Definition(name="counts", partitions=8)
    # A node without a share has no table, whether the keyspace was dropped or not.
    states = [(1, False), (1, True), (2, False), (2, True)]
    digests = {Known(definition, *state, None).digest for state in states}

    assert len(digests) == len(states)


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("who_begins", ["who knows of it", "who does not"])
def test_a_drop_whose_push_was_lost_is_found_by_comparison(
    who_begins: str, *, has_table: bool
) -> None:
    a, b = Gossiper("a", ["b"]), Gossiper("b", ["a"])
    for node in (a, b):
        node.create("counts")
    if not has_table:  # a node without a share passes on what it knows, too
        b.known()["counts"] = replace(b.known()["counts"], table=None)
    a.drop("counts")
    a.gossip.spread("counts", 1, [], 0)
    assert len(a.gossip.advance(GATHER_US)) == 1  # and it is lost
    first, other = (a, b) if who_begins == "who knows of it" else (b, a)

    asks = turn_of(first, other, SECOND)
    assert asks
    while asks:
        asks = answered(first, other, asks, SECOND)

    assert dropped(b)
    assert a.gossip.digest == b.gossip.digest
    assert not turn_of(first, other, 10 * SECOND)


# What is learnt.


def test_durable_keyspaces_of_another_store_are_not_believed() -> None:
    a = Gossiper("a", ["b", "c"])
    other, without = Gossiper("b", store_id="other"), Gossiper("c", store_id="")
    a.create("counts")
    a.create("seen", mode="memory")
    for name in ("counts", "seen"):
        a.gossip.spread(name, 1, [a.claim(name, 0)], 0)

    body = a.gossip.advance(GATHER_US)[0].body
    for node in (other, without):
        node.gossip.heard(body)

    assert other.facts().keys() == {"seen"}
    assert without.facts() == a.facts()


def test_a_keyspace_that_a_newer_version_made_hides_no_other() -> None:
    node = Gossiper("a")
    newer = Definition(name="newer").as_record() | {"colour": "red"}
    known = Definition(name="known", partitions=2).as_record()
    sheets = [[record, 1, False, [[]], 0] for record in (newer, known)]

    node.gossip.heard(encode_value("msgpack", [sheets, [], "s"]))

    assert node.known().keys() == {"known"}


# A dozen nodes.

STORES = dict.fromkeys("kl", "other") | {"a": ""}
"""The stores of nodes that do not have the one that most have."""
KNOWN_TO = {"seen": "abcdefghijkl", "counts": "abcdefghij", "later": "akl"}
"""Which nodes know of each keyspace: one in memory mode, and one in each store."""


def after_trouble(seed: int) -> Network:
    """A dozen nodes after a minute of claims, during which messages were lost, late, or doubled.

    A part of the claims were told to nobody.
    """
    rng = random.Random(seed)
    nodes = [Gossiper(n, store_id=STORES.get(n, "s"), seed=rng.randrange(1 << 30)) for n in NAMES]
    network = Network(nodes, seed)
    for name, names in KNOWN_TO.items():
        network.nodes[names[1]].create(name, mode="memory" if name == "seen" else "durable")
    network.loss = 0.3
    for _ in range(60):
        name = rng.choice(sorted(KNOWN_TO))
        # A node without a store owns no durable partition.
        owners = NAMES if name == "seen" else KNOWN_TO[name].replace("a", "")
        node = network.nodes[rng.choice(owners)]
        if rng.random() < 0.05:
            node.create(name, mode="memory" if name == "seen" else "durable", generation=2)
        if name in node.known():
            row = node.claim(name, rng.randrange(8))
            if rng.random() < 0.7:
                network.spread(node, name, [row])
        network.run(1)
    network.loss = 0.0
    return network


def agree(network: Network) -> bool:
    facts = {name: node.facts() for name, node in network.nodes.items()}
    for keyspace, names in KNOWN_TO.items():
        knowing = {name for name, known in facts.items() if keyspace in known}
        first, *others = [facts[name].get(keyspace) for name in names]
        if knowing != set(names) or any(other != first for other in others):
            return False
    return True


@pytest.mark.parametrize("seed", range(6))
def test_after_the_last_loss_all_tables_are_soon_the_same_and_nodes_rest(seed: int) -> None:
    network = after_trouble(seed)
    assert not agree(network)

    network.run(AGREED_AFTER_S)
    assert agree(network)
    assert len({node.gossip.digest for node in network.nodes.values()}) == 3

    network.run(RESTED_AFTER_S)
    calls = network.calls
    network.run(100)
    assert network.calls == calls


def test_nodes_that_forget_what_stays_different_never_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gossiping, "SETTLED_MAX", 1)
    network = after_trouble(1)
    network.run(AGREED_AFTER_S + RESTED_AFTER_S)
    calls = network.calls

    network.run(20)

    assert network.calls > calls + 20
