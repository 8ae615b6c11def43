"""Theta-IPOD against the oracle and against a convex solver that shares nothing with it."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from tests import reference as ref
from trip_jax.protocol.outliers import DetectOutliers, robust_location
from trip_jax.protocol.reports import Reports

N = 5
compiled_location = jax.jit(robust_location, static_argnames=("n", "thresholding"))


def reports(seed: int, count: int = 40, lies: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """(member, value) of reports that agree up to noise, but for some lies."""
    rng = np.random.default_rng(seed)
    member = rng.permutation(np.arange(count) % N)
    p = rng.normal(size=N)[member] + 0.02 * rng.normal(size=count)
    p[rng.choice(count, lies, replace=False)] += rng.choice([-1, 1], lies) * rng.uniform(
        0.3, 3, lies
    )
    return member, p


def solve(member: np.ndarray, p: np.ndarray, lam: float, thresholding: str = "soft") -> np.ndarray:
    return np.asarray(
        compiled_location(
            jnp.asarray(p, jnp.float32),
            jnp.asarray(member),
            jnp.ones(len(p), bool),
            N,
            penalty=lam,
            thresholding=thresholding,
        )
    )


def objective(member: np.ndarray, p: np.ndarray, v: np.ndarray, lam: float) -> float:
    """min over gamma of |p - Av - gamma|^2 + lam |gamma|_1, by a dense grid-free case analysis."""
    r = np.abs(p - v[member])
    return float(np.sum(np.where(r <= lam / 2, r**2, lam * r - lam**2 / 4)))


def convex_solution(member: np.ndarray, p: np.ndarray, lam: float) -> float:
    """The least objective, by a quasi-Newton solver on v and gamma = a - b with a, b >= 0."""
    k = len(p)

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        v, a, b = x[:N], x[N : N + k], x[N + k :]
        r = p - v[member] - (a - b)
        gradient_v = np.zeros(N)
        np.add.at(gradient_v, member, -2 * r)
        return float(r @ r + lam * (a + b).sum()), np.concatenate(
            [gradient_v, -2 * r + lam, 2 * r + lam]
        )

    result = minimize(
        value_and_gradient,
        np.zeros(N + 2 * k),
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * N + [(0, None)] * (2 * k),
        options={"maxiter": 5000, "maxfun": 50000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return float(result.fun)


@pytest.mark.parametrize("lam", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_soft_reaches_the_minimum_of_a_convex_solver(seed: int, lam: float) -> None:
    member, p = reports(seed)
    v = solve(member, p, lam)
    best = convex_solution(member, p, lam)
    assert objective(member, p, v, lam) == pytest.approx(best, rel=1e-4, abs=1e-5)
    worse = objective(member, p, v + 0.01, lam)
    assert worse > best + 1e-5


def test_a_vanishing_penalty_gives_least_absolute_deviations() -> None:
    member, p = reports(0)
    lam = 0.002
    k = len(p)
    cost = np.concatenate([np.zeros(N), np.ones(2 * k)])
    onehot = np.eye(N)[member]
    solution = linprog(
        cost,
        A_eq=np.hstack([onehot, np.eye(k), -np.eye(k)]),
        b_eq=p,
        bounds=[(None, None)] * N + [(0, None)] * (2 * k),
    )
    deviation = np.abs(p - solve(member, p, lam)[member]).sum()
    assert deviation == pytest.approx(solution.fun, abs=k * lam)


@pytest.mark.parametrize("thresholding", ["soft", "hard"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_against_the_oracle(thresholding: Any, seed: int) -> None:
    member, p = reports(seed)
    v, _ = ref.theta_ipod(
        [(0, int(j), float(x)) for j, x in zip(member, p, strict=True)], 0.2, thresholding
    )
    ours = solve(member, p, 0.2, thresholding)
    if thresholding == "soft":  # the minimiser may not be unique, its value is
        theirs = objective(member, p, np.array([v[j] for j in range(N)]), 0.2)
        assert objective(member, p, ours, 0.2) == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    else:
        np.testing.assert_allclose(ours, [v[j] for j in range(N)], atol=1e-4)


def test_hard_thresholding_leaves_a_lie_no_pull() -> None:
    member, p = np.zeros(5, int), np.array([1.0, 1.0, 1.0, 1.0, 9.0])
    assert solve(member, p, 0.4, "hard")[0] == pytest.approx(1)
    assert solve(member, p, 0.4, "soft")[0] == pytest.approx(1 + 0.2 / 4, abs=1e-4)


@pytest.mark.parametrize("lie", [1e2, 1e4, 1e6, 1e8])
def test_an_enormous_lie_moves_no_consensus(lie: float) -> None:
    member = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    p = np.array([0.1, 0.1, 0.1, 0.1, lie, 0.1, 0.1, 0.1, 0.1, 0.9])
    np.testing.assert_allclose(solve(member, p, 0.1)[:2], 0.1125, atol=1e-5)
    np.testing.assert_allclose(solve(member, p, 0.1, "hard")[:2], 0.1, atol=1e-6)


def test_an_even_split_is_left_at_the_mean() -> None:
    assert solve(np.array([0, 0]), np.array([1.0, 4.0]), 0.1)[0] == pytest.approx(2.5)


def test_members_without_reports_and_padding_do_not_matter() -> None:
    member, p = np.array([1, 1, 3]), np.array([0.5, 0.7, -1.0])
    v = solve(member, p, 0.1)
    np.testing.assert_allclose(v, [0, 0.6, 0, -1, 0], atol=1e-6)
    for thresholding in ("soft", "hard"):
        padded = compiled_location(
            jnp.asarray([0.5, 0.7, -1.0, 99.0, 99.0]),
            jnp.asarray([1, 1, 3, 0, 1]),
            jnp.asarray([True, True, True, False, False]),
            N,
            penalty=0.1,
            thresholding=thresholding,
        )
        np.testing.assert_allclose(padded, v, atol=1e-6)


@partial(jax.jit, static_argnames="thresholding")
def compiled_verdict(told: Reports, thresholding: str) -> Any:
    return DetectOutliers(0.02, 0.1, thresholding)(told, 4)


def verdict_on(client: Any, member: Any, lcv: Any, thresholding: str = "soft") -> Any:
    """The verdict on reports of up to four clients: padded, so that one program serves all."""
    lacking = 16 - len(lcv)
    columns = (np.pad(one, (0, lacking)) for one in (client, member, np.ones(len(lcv)), lcv))
    told = Reports(*map(jnp.asarray, columns), jnp.arange(16) < len(lcv))
    return compiled_verdict(told, thresholding)


@pytest.mark.parametrize("thresholding", ["soft", "hard"])
def test_honest_agreeing_reports_are_left_alone_and_a_lie_is_not(thresholding: str) -> None:
    """Four clients report on each other; client 2 claims 0.5 more for itself."""
    client, member = (a.ravel() for a in np.meshgrid(np.arange(4), np.arange(4), indexing="ij"))
    lcv = np.array([0.1, 0.2, 0.3, 0.4])[member]
    lcv[(client == 2) & (member == 2)] += 0.5
    verdict = verdict_on(client, member, lcv, thresholding)
    assert np.asarray(verdict.flagged).tolist() == [False, False, True, False]
    truth = np.array([0.1, 0.2, 0.3, 0.4])[member]
    np.testing.assert_allclose(verdict.adopted, truth, atol=0.01)
    assert float(verdict.distance[2]) == pytest.approx(0.5, abs=0.01)


def test_nobody_has_a_say_in_the_consensus_on_itself() -> None:
    """The others' word on client 0 is its reference; nobody confirms what client 2 says of
    itself."""
    client, member = np.array([0, 1, 0, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 0])
    for praise in (0.3, 3.0):
        lcv = np.array([praise, 0.1, 0.2, 0.2, 7.0, 0.1])
        verdict = verdict_on(client, member, lcv)
        np.testing.assert_allclose(verdict.adopted[:6], [0.1, 0.1, 0.2, 0.2, 0, 0.1], atol=1e-6)
        np.testing.assert_allclose(verdict.distance, [praise - 0.1, 0, 0, 0], atol=1e-6)
        assert np.asarray(verdict.unconfirmed).tolist() == [False, False, True, False]


def test_word_on_oneself_of_zero_is_nothing_to_confirm() -> None:
    verdict = verdict_on([0], [0], [0.0])
    assert not verdict.unconfirmed.any() and not verdict.flagged.any()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_verdicts_are_the_oracles_on_any_graph(seed: int) -> None:
    """Few arcs, so that many clients have one other reporter, or none."""
    rng = np.random.default_rng(seed)
    heard = (rng.random((N, N)) < 0.2) | np.eye(N, dtype=bool)
    client, member = np.nonzero(heard)
    lcv = rng.normal(size=len(client)).astype(np.float32)
    size = N * N - len(client)  # padded, so that one program serves all
    real = np.arange(N * N) < len(client)
    columns = (np.pad(one, (0, size)) for one in (client, member, np.ones(len(client)), lcv))
    verdict = judged(Reports(*map(jnp.asarray, columns), jnp.asarray(real)))
    lcvs = [{int(j): float(lcv[(client == i) & (member == j)][0]) for j in member[client == i]}
            for i in range(N)]  # fmt: skip
    adopted, flagged, distances = ref.detect_outliers(lcvs, 0.5, 1.0, "hard")
    found = np.asarray(verdict.adopted)[: len(client)]
    expected = [adopted[i][int(j)] for i, j in zip(client, member, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(verdict.distance, distances, atol=1e-5)
    assert np.asarray(verdict.flagged).tolist() == flagged


@jax.jit
def judged(told: Reports) -> Any:
    return DetectOutliers(0.5, 1.0, "hard")(told, N)
