"""Exchanges that both ends state: the rule of peers and that of tables, against loops."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("hypothesis", reason="pip install trip-node[test]")

from hypothesis import given
from hypothesis import strategies as st

from trip_node.deployment.report_table import read_reports
from trip_node.deployment.tracing import _table, after, nothing_yet
from trip_node.node import Report
from trip_node.node.exchanges import Disputed, stated_by_both
from trip_node.protocol.defences import Defence

NAMES = ("a", "b", "c", "d")


def reports(seed: int) -> dict[str, Report]:
    """Of a round; some lack, some exchanges are stated by one end, some weights are zero."""
    rng = np.random.default_rng(seed)
    told = {}
    for name in NAMES:
        if rng.random() < 0.2:
            continue
        members = (*(other for other in NAMES if other != name and rng.random() < 0.6), name)
        weights = rng.choice([0.0, 1.0, 3.0, 1e-200], len(members))
        weights[rng.integers(len(members))] = 2.0
        lcv = tuple(rng.normal(size=len(members)).tolist())
        sent = tuple(other for other in NAMES if other != name and rng.random() < 0.6)
        numbers = tuple(weights.tolist()), lcv, (0.0,) * len(members)
        told[name] = Report(name, 7, members, *numbers, 8, sent_to=sent)
    return told


@given(st.integers(0, 2**32 - 1))
def test_both_forms_of_the_rule_are_the_loops(seed: int) -> None:
    told = reports(seed)
    counted, disputed = stated_by_both(told)
    expected, arcs = [], {}
    for i in NAMES:
        for j in NAMES:
            mixes = i in told and j in told[i].members
            sends = j in told and i in (told[j].sent_to or ())
            if i != j and mixes != sends:
                expected.append(Disputed(7, i, j, "client" if mixes else "member"))
            if mixes and (sends or i == j):
                k = told[i].members.index(j)
                arcs[i, j] = (told[i].weights[k], told[i].lcv[k])
        weights = [arcs[i, j][0] for j in NAMES if (i, j) in arcs]
        if i not in told:
            arcs[i, i] = (1.0, 0.0)
        elif not any(weights):
            arcs[i, i] = (1.0, arcs[i, i][1])
    assert disputed == expected
    peers = {
        (i, j): (weight, lcv)
        for i, one in counted.items()
        for j, weight, lcv in zip(one.members, one.weights, one.lcv, strict=True)
    }
    assert peers == {arc: value for arc, value in arcs.items() if arc[0] in told}

    found = read_reports(_table(list(told.values()), NAMES, 7))
    columns = (np.asarray(one)[0] for one in vars(found.reports).values())
    table = {
        (NAMES[i], NAMES[j]): (float(weight), float(lcv))
        for i, j, weight, lcv, real in zip(*columns, strict=True)
        if real
    }
    assert table.keys() == arcs.keys() and found.disputed is not None
    for (i, j), (weight, lcv) in arcs.items():
        heaviest = max(one for arc, (one, _) in arcs.items() if arc[0] == i)
        assert table[i, j] == pytest.approx((weight / heaviest, lcv))
    by = ("member", "client")
    assert [
        Disputed(t, NAMES[i], NAMES[j], by[one]) for t, i, j, one in found.disputed.tolist()
    ] == expected


def test_who_keeps_nothing_of_weight_keeps_its_own_model() -> None:
    """a gives its own model no weight, and b denies that it sent one."""
    phi = np.zeros((2, 2))
    before = nothing_yet(["a", "b"])
    first = [Report(name, 1, (name,), (1,), (0.5,), (0,), 2) for name in "ab"]
    a = Report("a", 2, ("a", "b"), (0, 1), (0.25, 9.0), (0, 0), 4, sent_to=())
    b = Report("b", 2, ("b",), (1,), (0.0,), (0,), 2)
    traced = after(after(before, 1, first, Defence()), 2, [a, b], Defence())
    phi[0, 0], phi[1, 1] = 0.75, 0.5
    np.testing.assert_array_equal(traced.phi, phi)
    traced = after(
        after(before, 1, first, Defence()), 2, [a, replace(b, sent_to=("a",))], Defence()
    )
    np.testing.assert_array_equal(traced.phi, [[0.25, 9.5], [0, 0.5]])
