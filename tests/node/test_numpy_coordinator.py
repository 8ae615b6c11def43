"""The coordinator on NumPy and SciPy, against the oracle with loops everywhere."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import reference as ref
from trip_node.protocol.coordinator import LARGEST, trace
from trip_node.protocol.defences import DISTANCE, PENALTY, Defence, audit_of
from trip_node.protocol.outliers import DetectOutliers, robust_location
from trip_node.protocol.reports import Reports, Verdict
from trip_node.settings.errors import InvalidSetting

N, T = 6, 4
Rounds = list[list[ref.Lcv]]


def told(seed: int) -> tuple[Rounds, Rounds]:
    """LCVs and weights [T][N] of random neighbourhoods, which all know client 0; one round lies."""
    rng = np.random.default_rng(seed)
    weights = [
        [
            {int(j): float(rng.uniform(0.5, 3)) for j in {i, 0, *rng.choice(N, 3).tolist()}}
            for i in range(N)
        ]
        for _ in range(T)
    ]
    lcvs = [
        [{j: float(rng.normal(0.1, 0.02)) for j in members} for members in one] for one in weights
    ]
    lcvs[2][3] = {j: value + 1 for j, value in lcvs[2][3].items()}
    return lcvs, weights


def stacked(lcvs: Rounds, weights: Rounds, padding: int = 3) -> Reports:
    """Fields [T, A], padded by what would be garbage if it counted."""
    lines = [
        [(i, j, weights[t][i][j], lcv, True) for i in range(N) for j, lcv in lcvs[t][i].items()]
        for t in range(len(lcvs))
    ]
    longest = max(map(len, lines)) + padding
    nothing = (0, 0, 7.0, np.nan, False)
    rows = np.array([one + [nothing] * (longest - len(one)) for one in lines], object)
    types = (int, int, float, float, bool)
    return Reports(*(rows[:, :, k].astype(kind) for k, kind in enumerate(types)))


@pytest.mark.parametrize("seed", range(5))
def test_phi_is_that_of_the_oracle(seed: int) -> None:
    lcvs, weights = told(seed)
    phi, verdict = trace(stacked(lcvs, weights), N)
    expected = np.zeros((N, N))
    for values, shares in zip(lcvs, weights, strict=True):
        expected = ref.update_contributions(expected, values, shares)
    np.testing.assert_allclose(phi, expected, atol=1e-6)
    assert phi.dtype == np.float32 and not verdict.flagged.any() and verdict.unconfirmed is None


@pytest.mark.parametrize("thresholding", ["soft", "hard"])
@pytest.mark.parametrize("seed", range(5))
def test_c2_is_that_of_the_oracle(thresholding: Any, seed: int) -> None:
    lcvs, weights = told(seed)
    defence = Defence(c2=True, penalty=0.02, distance=0.03, thresholding=thresholding)
    phi, verdict = trace(stacked(lcvs, weights), N, defence)
    expected = np.zeros((N, N))
    for t, (values, shares) in enumerate(zip(lcvs, weights, strict=True)):
        kept, flags, distances = ref.detect_outliers(values, 0.02, 0.03, thresholding)
        np.testing.assert_allclose(verdict.distance[t], distances, atol=1e-5)
        np.testing.assert_array_equal(verdict.flagged[t], flags)
        expected = ref.update_contributions(expected, kept, shares)
    assert verdict.flagged[2, 3]
    np.testing.assert_allclose(phi, expected, atol=1e-5)


@pytest.mark.parametrize("defence", [Defence(), Defence(c2=True)], ids=["plain", "C2"])
def test_neither_order_nor_padding_changes_a_bit(defence: Defence) -> None:
    lcvs, weights = told(0)
    tidy = stacked(lcvs, weights, padding=0)
    rng = np.random.default_rng(1)
    padded = stacked(lcvs, weights, padding=9)
    order = rng.permuted(np.tile(np.arange(padded.client.shape[1]), (T, 1)), axis=1)
    mixed = Reports(
        *(np.take_along_axis(getattr(padded, one.name), order, axis=1) for one in fields(padded))
    )
    phi, verdict = trace(tidy, N, defence)
    again, shuffled = trace(mixed, N, defence)
    if not defence.c2:  # whose sums over reporters go by their order
        np.testing.assert_array_equal(again, phi)
    np.testing.assert_allclose(again, phi, atol=1e-7)
    np.testing.assert_array_equal(shuffled.flagged, verdict.flagged)


@pytest.mark.parametrize("value", [np.nan, np.inf, -2 * LARGEST, 1e39])
@pytest.mark.parametrize("c2", [False, True])
def test_garbage_counts_as_zero_and_is_flagged(value: float, c2: bool) -> None:
    lcvs, weights = told(0)
    lcvs[1][4][0] = value
    phi, verdict = trace(stacked(lcvs, weights), N, Defence(c2=c2))
    assert verdict.flagged[1, 4] and np.isfinite(phi).all()
    lcvs[1][4] = dict.fromkeys(lcvs[1][4], 0.0)
    if not c2:  # with it the others' consensus takes the place of zeros that lie far from it
        np.testing.assert_array_equal(phi, trace(stacked(lcvs, weights), N)[0])


def test_what_nobody_else_reports_on_is_unconfirmed() -> None:
    reports = Reports(
        *map(np.array, ([0, 1, 1], [0, 1, 0], [1.0] * 3, [0.3, 0.2, 0.1], [True] * 3))
    )
    verdict = DetectOutliers(1.0, 1.0)(reports, np.ones(3, bool), 2)
    assert verdict.unconfirmed is not None
    np.testing.assert_array_equal(verdict.unconfirmed, [False, True])
    np.testing.assert_allclose(verdict.adopted, [0.3, 0, 0.1], atol=1e-7)


@pytest.mark.parametrize("lie", [1e2, 1e8, 1e15])
def test_an_enormous_lie_moves_no_consensus(lie: float) -> None:
    member = np.array([0, 0, 0, 0, 0, 2])
    p = np.array([0.1, 0.1, 0.1, 0.1, lie, -1.0])
    soft = robust_location(p, member, 4, penalty=0.1, thresholding="soft")
    np.testing.assert_allclose(soft, [0.1125, 0, -1, 0], atol=1e-6)
    hard = robust_location(p, member, 4, penalty=0.1, thresholding="hard")
    np.testing.assert_allclose(hard, [0.1, 0, -1, 0], atol=1e-12)


def test_an_even_split_is_left_at_the_mean() -> None:
    found = robust_location(
        np.array([1.0, 4.0]), np.zeros(2, int), 1, penalty=0.1, thresholding="soft"
    )
    assert found[0] == pytest.approx(2.5)


WRONG: dict[str, tuple[Callable[[Reports], Any], str]] = {
    "shapes": (lambda r: replace(r, lcv=r.lcv[:, :-1]), r"Fields of Reports must all be \[T, A\]"),
    "clients": (lambda r: replace(r, client=r.client + 1), r"Reports\.client has 6"),
    "weights": (lambda r: replace(r, weight=-r.weight), "must be finite and not negative"),
    "no report": (
        lambda r: replace(r, weight=0 * r.weight),
        "reports no weight above 0 in round 0",
    ),
    "kinds": (lambda r: replace(r, real=r.weight), r"and \.real bools"),
}


@pytest.mark.parametrize("case", WRONG)
def test_reports_that_are_none_are_refused(case: str) -> None:
    change, said = WRONG[case]
    with pytest.raises(InvalidSetting, match=said):
        trace(change(stacked(*told(0))), N)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"penalty": 0.0, "c2": True}, "defence.penalty must be a number above 0"),
        ({"distance": -1.0, "c2": True}, "defence.distance must be at least 0"),
        ({"thresholding": "firm", "c2": True}, "defence.thresholding must be one of soft, hard"),
        ({"penalty": 0.1}, "have no effect with defence.c2=false"),
        ({"c2": "yes"}, "defence.c2 must be true or false"),
    ],
)
def test_settings_of_c2_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        Defence(**settings)


def test_thresholds_that_are_not_given_are_the_calibrated_ones() -> None:
    assert audit_of(Defence(c2=True)) == DetectOutliers(PENALTY, DISTANCE, "soft")
    assert audit_of(Defence(c2=True, distance=0.5)) == DetectOutliers(PENALTY, 0.5, "soft")


def test_no_rounds_are_no_contributions() -> None:
    nothing = [np.zeros((0, 3), kind) for kind in (int, int, float, float, bool)]
    phi, verdict = trace(Reports(*nothing), 3, Defence(c2=True))
    assert isinstance(verdict, Verdict) and verdict.flagged.shape == (0, 3)
    np.testing.assert_array_equal(phi, np.zeros((3, 3)))
