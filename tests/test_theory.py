"""When methods are exact: the claims of docs/theory.md that are not in test_attribution."""

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from flax import struct

from tests import reference as ref
from tests.conftest import rarely, tiny, tiny_data
from trip_jax import Contribution, Training
from trip_jax.attribution import Journal, by_cascade, by_ripple, mean_of_units, traced
from trip_jax.attribution.cascade import cascades
from trip_jax.attribution.replay import Response
from trip_jax.attribution.surrogate import fitted_response
from trip_jax.learning.evaluation import LOSS
from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import WeightedMean
from trip_jax.protocol.messages import Inbox, Messages
from trip_jax.protocol.methods.cgsv import CGSV
from trip_jax.protocol.methods.dice import DICE
from trip_jax.protocol.methods.fedif import FedIF
from trip_jax.protocol.methods.gain import Gain
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood
from trip_jax.protocol.methods.second_order import SecondOrder
from trip_jax.protocol.methods.weights import Weights
from trip_jax.protocol.round import Round
from trip_jax.shapley import game_values
from trip_jax.simulation import Simulation
from trip_jax.topology import build
from trip_jax.truth.shapley_value import decentralised_truth

N, P = 5, 3


@struct.dataclass
class Quadratic(Learner):
    """A learner whose utility is a quadratic function of a model, three times over."""

    slope: Any = None
    bend: Any = None

    def smooth_utilities(self, theta: jax.Array) -> jax.Array:
        return jnp.tile(self.slope @ theta + theta @ self.bend @ theta / 2, 3)

    def evaluate_rows(self, models: jax.Array) -> jax.Array:
        return jax.vmap(self.smooth_utilities)(models)


def quadratic(curved: bool = True) -> Quadratic:
    rng = np.random.default_rng(0)
    slope, bend = rng.normal(size=P), curved * rng.normal(size=(P, P))
    numbers = {"slope": jnp.asarray(slope), "bend": jnp.asarray(bend + bend.T)}
    return Quadratic(**vars(tiny().learner), **numbers)


def models() -> tuple[np.ndarray, np.ndarray]:
    """Before and after training."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, P)), rng.normal(size=(N, P))


def arcs() -> np.ndarray:
    """Weights of a directed graph."""
    rng = np.random.default_rng(2)
    return rng.random((N, N)) * (rng.random((N, N)) < 0.6) + np.eye(N)


def told(
    method: ByNeighbourhood, learner: Learner, matrix: np.ndarray, models: Any, alone: bool = False
) -> np.ndarray:
    """A method's psi [n, n] of a round.

    Args:
        alone: whether client 0 accepts nobody's model before training, so that its own stands for
            all of them.
    """
    here = jax.tree.map(np.asarray, build(matrix, np.ones(N))).at(0)
    before, trained = (jnp.asarray(one, jnp.float32) for one in models)
    found = compiled_lcv(method, learner, here, before, trained, alone)
    psi = np.zeros((N, N))
    for i, slot in np.argwhere(np.asarray(here.mask)):
        psi[i, int(here.members[i, slot])] = found[i, slot, 0]
    return psi


@partial(jax.jit, static_argnames="method")
def compiled_lcv(
    method: ByNeighbourhood,
    learner: Learner,
    here: Any,
    before: jax.Array,
    trained: jax.Array,
    alone: Any,
) -> jax.Array:
    nobody = jnp.zeros(0, jnp.int32)
    own = Messages(before, trained, jnp.zeros(N), jnp.zeros(N, bool), nobody)
    filtered = jnp.zeros_like(here.mask).at[0].set(alone)
    now = Round(jnp.int32(0), None, here, None, None, None)
    return method(Inbox(own, own, filtered), now, WeightedMean(), learner).lcv


def played(learner: Learner, matrix: np.ndarray, models: Any, alone: bool = False) -> np.ndarray:
    """The Shapley values [n, n] of the round's games, by enumeration."""
    shares, (before, trained) = matrix / matrix.sum(axis=1, keepdims=True), models
    psi = np.zeros((N, N))
    for i in range(N):
        members = [int(j) for j in np.flatnonzero(matrix[i])]
        start = np.tile(before[0], (N, 1)) if alone and i == 0 else before

        def utility(inside: Any, i: int = i, start: np.ndarray = start) -> float:
            mixed = shares[i] @ np.where(np.isin(range(N), list(inside))[:, None], trained, start)
            return float(learner.smooth_utilities(jnp.asarray(mixed))[0])

        game = {s: utility(s) for s in ref.coalitions(members)}
        for j, value in ref.shapley(game, members, "efficient").items():
            psi[i, j] = value
    return psi


def test_the_second_order_is_the_shapley_value_of_a_quadratic_utility() -> None:
    learner, matrix = quadratic(), arcs()
    found = told(SecondOrder(), learner, matrix, models(), alone=True)
    np.testing.assert_allclose(found, played(learner, matrix, models(), alone=True), atol=1e-5)


def test_dice_is_the_shapley_value_of_a_linear_utility() -> None:
    learner, matrix = quadratic(curved=False), arcs()
    expected = played(learner, matrix, models())
    np.testing.assert_allclose(told(DICE(), learner, matrix, models()), expected, atol=1e-5)
    curved = quadratic()
    off = told(DICE(), curved, matrix, models()) - played(curved, matrix, models())
    assert abs(off).max() > 0.1


def test_the_gain_is_the_shapley_value_of_members_who_do_the_same() -> None:
    learner, (before, trained) = quadratic(), models()
    same = before, before + (trained - before)[0]
    equal = (arcs() > 0).astype(float)
    expected = played(learner, equal, same)
    np.testing.assert_allclose(told(Gain(), learner, equal, same), expected, atol=1e-5)
    off = told(Gain(), learner, equal, models()) - played(learner, equal, models())
    assert abs(off).max() > 0.1


@pytest.mark.parametrize("method", [Weights(), CGSV(), FedIF()])
def test_what_has_no_unit_of_the_utility_is_no_shapley_value(method: ByNeighbourhood) -> None:
    learner, given = quadratic(), (arcs(), models())
    twice = replace(learner, slope=2 * learner.slope, bend=2 * learner.bend)
    found, expected = told(method, learner, *given), played(learner, *given)
    np.testing.assert_allclose(told(method, twice, *given), found, atol=1e-5)
    np.testing.assert_allclose(played(twice, *given), 2 * expected, rtol=1e-4, atol=1e-5)
    assert abs(found).max() > 0.1 and abs(expected).max() > 0.1


def federation(method: str, rounds: int = 1, utility: str = "loss") -> Simulation:
    graphs = [nx.DiGraph([(0, 1), (1, 2), (2, 0), (3, 2), (2, 1)]), nx.path_graph(4)]
    return tiny(
        graphs,
        data=tiny_data((12, 7, 16, 5)),
        training=Training(rounds, local_epochs=2, batch_size=4, learning_rate=0.2),
        contribution=Contribution(utility, "efficient", method=method),
    )


def test_trip_is_the_whole_truth_of_a_single_round_and_of_no_more() -> None:
    for rounds, exact in ((1, True), (2, False)):
        simulation = federation("trip", rounds)
        off = simulation.run().phi - decentralised_truth(simulation).values[..., LOSS]
        assert (abs(off).max() < 1e-5) == exact


@pytest.mark.thorough
def test_shapfed_is_the_same_by_any_utility() -> None:
    """And so is no Shapley value of any."""
    one, other = (
        federation("shapfed", utility=utility).run().phi for utility in ("loss", "accuracy")
    )
    np.testing.assert_array_equal(one, other)
    assert one.any()


def test_net_gain_is_trip_where_nobody_does_harm() -> None:
    rows = [federation(method, 6).run().records.lcv for method in ("trip", "net_gain")]
    trip, net = (np.asarray(one).swapaxes(2, 3).reshape(-1, one.shape[2]) for one in rows)
    harmless, some = (trip >= 0).all(axis=1), abs(trip).max(axis=1) > 0
    np.testing.assert_allclose(net[harmless], trip[harmless], rtol=1e-5)
    harmed = ~harmless & (trip.sum(axis=1) > 0)
    assert (harmless & some).any() and harmed.any()
    assert (abs(net[harmed]).sum(axis=1) < 0.999 * abs(trip[harmed]).sum(axis=1)).all()


@pytest.fixture
def mixing() -> np.ndarray:
    """Directed, another one in each of six rounds."""
    rng = np.random.default_rng(1)
    weights = rng.random((6, N, N)) * (rng.random((6, N, N)) < 0.6) + np.eye(N) / 4
    return weights / weights.sum(axis=2, keepdims=True)


class Federation:
    """Clients of quadratic losses with one Hessian, which differ in their optima."""

    def __init__(
        self,
        mixing: np.ndarray,
        shrinks: tuple[float, ...] = (0.1, 0.4, 0.8),
        present: np.ndarray | None = None,
    ):
        rng = np.random.default_rng(3)
        axes = np.linalg.qr(rng.normal(size=(P, P)))[0]
        self.mixing, self.contraction = mixing, axes @ np.diag(shrinks) @ axes.T
        self.optima = rng.normal(size=(N, P))
        self.present = np.ones(mixing.shape[:2], bool) if present is None else present
        self.steps = rng.normal(size=(N, P)) * (not any(shrinks))  # of linear losses

    def execute(self, scale: Any) -> tuple[np.ndarray, np.ndarray]:
        """Final models and updates where the clients' updates are scaled."""
        models, updates = np.zeros((N, P)), []
        for mixed, there in zip(self.mixing, self.present, strict=True):
            update = (self.optima - models) @ self.contraction + self.steps
            updates.append(np.where(there[:, None], update, 0))
            models = mixed @ (models + np.asarray(scale)[:, None] * updates[-1])
        return models, np.stack(updates)

    def journal(self) -> Journal:
        _, updates = self.execute(np.ones(N))
        nothing = np.zeros((*self.mixing.shape, 3), np.float32)
        start = np.zeros(P, np.float32)
        return Journal(start, updates, self.mixing, nothing, np.full(N, 7), self.present)

    def truth(self, learner: Learner) -> np.ndarray:
        """Shapley values by re-execution."""
        every = np.arange(2**N)[:, None] >> np.arange(N) & 1
        final = np.stack([self.execute(inside)[0] for inside in every])
        utility = jax.vmap(jax.vmap(learner.smooth_utilities))(jnp.asarray(final))
        return np.moveaxis(game_values(np.asarray(utility, float)), 0, 1)[..., 0]


@pytest.mark.parametrize("share", [rarely(1), 0.6])
def test_a_cascade_is_the_effect_of_a_little_less_training(
    mixing: np.ndarray, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Of quadratic losses with one Hessian, on directed graphs that change, by differences.

    Args:
        share: of rounds in which a client is there.
    """
    monkeypatch.setattr("trip_jax.attribution.surrogate.RIDGE", 1e-9)
    present = np.random.default_rng(4).random(mixing.shape[:2]) < share
    some, learner = Federation(mixing, present=present), quadratic()
    slopes = np.zeros((N, N))
    for j in range(N):
        ends = [some.execute(1 + sign * 1e-2 * np.eye(N)[j])[0] for sign in (1, -1)]
        utility = [jax.vmap(learner.smooth_utilities)(jnp.asarray(end))[:, 0] for end in ends]
        slopes[:, j] = (utility[0] - utility[1]) / 2e-2
    found = by_cascade(some.journal(), learner).phi[..., 0]
    np.testing.assert_allclose(found, slopes, atol=5e-3)
    assert abs(slopes).max() > 0.15
    assert abs(found - some.truth(learner)).max() > 0.1  # which is no Shapley value


def test_a_ripple_is_the_effect_of_a_little_less_training_on_the_models_of_all_rounds(
    mixing: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of quadratic losses with one Hessian, by differences, a round after another."""
    monkeypatch.setattr("trip_jax.attribution.surrogate.RIDGE", 1e-9)
    present = np.random.default_rng(4).random(mixing.shape[:2]) < 0.8
    learner, ends = quadratic(), np.zeros((2, len(mixing), N, N, P))
    for side, s, j in product(range(2), range(len(mixing)), range(N)):
        until = Federation(mixing[: s + 1], present=present[: s + 1])
        ends[side, s, j] = until.execute(1 + (1 - 2 * side) * 1e-2 * np.eye(N)[j])[0]
    utility = jax.vmap(learner.smooth_utilities)(jnp.asarray(ends.reshape(-1, P)))[:, 0]
    more, less = np.asarray(utility).reshape(ends.shape[:-1])
    slopes = (more - less).swapaxes(1, 2) / 2e-2  # [round, receiver, who trains less]
    journal = Federation(mixing, present=present).journal()
    found = by_ripple(journal, learner).phi[..., 0]
    np.testing.assert_allclose(found, slopes.sum(axis=0), atol=2e-2)
    last = by_cascade(journal, learner).phi[..., 0]
    np.testing.assert_allclose(last, slopes[-1], atol=5e-3)
    assert abs(found - last).max() > 0.15


def test_ripples_of_a_linear_utility_are_sums_over_paths(
    mixing: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where updates depend on no model, every path to any round brings its weight of an update."""
    name = "trip_jax.attribution.ripple.fitted_response"
    monkeypatch.setattr(name, lambda journal: Response.none(3, N))
    journal = Federation(mixing[:3], (0, 0, 0)).journal()
    learner, (first, second, third) = quadratic(curved=False), mixing[:3]
    expected = np.zeros((N, N))
    for i, j in product(range(N), repeat=2):
        paths = first[i, j] + second[i, j] + third[i, j]
        for b in range(N):
            paths += second[i, b] * first[b, j] + third[i, b] * second[b, j]
            paths += sum(third[i, a] * second[a, b] * first[b, j] for a in range(N))
        expected[i, j] = paths * (journal.updates[0, j] @ np.asarray(learner.slope))
    np.testing.assert_allclose(by_ripple(journal, learner).phi[..., 0], expected, atol=1e-4)


def test_paths_of_a_cascade(mixing: np.ndarray) -> None:
    """Hop by hop, against all sequences of clients."""
    journal = Federation(mixing[:3]).journal()
    response = fitted_response(journal)
    updates = journal.updates.reshape(-1, P)
    found = np.asarray(cascades(journal.mixing, response, journal.present)) @ updates
    everywhere = np.broadcast_to(np.eye(3 * N)[:, None], (3 * N, N, 3 * N))
    keep = everywhere - np.asarray(response(jnp.asarray(everywhere)))  # what training leaves

    expected, unit = np.zeros((N, N, P)), np.eye(3 * N)
    first, second, third = journal.mixing
    for j, i in product(range(N), repeat=2):
        expected[j, i] = third[i, j] * updates[2 * N + j]
        for b in range(N):
            weight, one = third[i, b] * second[b, j], unit[N + j] @ keep[:, b]
            expected[j, i] += weight * one @ updates
            for a in range(N):
                weight = third[i, b] * second[b, a] * first[a, j]
                expected[j, i] += weight * (unit[j] @ keep[:, a] @ keep[:, b]) @ updates
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_all_is_exact_where_utility_and_updates_are_linear(mixing: np.ndarray) -> None:
    """Shares of linear gains, Eq. 3 and cascades are then what re-execution finds."""
    some, learner = Federation(mixing, (0, 0, 0)), quadratic(curved=False)
    truth, journal = some.truth(learner), some.journal()
    psi = journal.mixing * (journal.updates @ np.asarray(learner.slope))[:, None, :]
    np.testing.assert_allclose(traced(journal.mixing, psi), truth, atol=1e-5)
    for method in (SecondOrder(), DICE()):
        before, rounds = np.zeros((N, P)), []
        for mixed, update in zip(mixing, journal.updates, strict=True):
            rounds.append(told(method, learner, mixed, (before, before + update)))
            before = mixed @ (before + update)
        np.testing.assert_allclose(traced(mixing, np.stack(rounds)), truth, atol=1e-4)
    fitted = by_cascade(journal, learner).phi[..., 0]  # whose K is small, but not 0
    assert 0 < abs(fitted - truth).max() / abs(truth).max() < 0.03
    reached = np.asarray(cascades(journal.mixing, Response.none(6, N), journal.present))
    along = journal.updates.reshape(-1, P) @ np.asarray(learner.slope)
    np.testing.assert_allclose((reached @ along).T, truth, atol=1e-5)


def test_combinations_are_wrong_where_what_they_combine_is_right(mixing: np.ndarray) -> None:
    """Means of units leave the utility's scale."""
    some, learner = Federation(mixing, (0, 0, 0)), quadratic(curved=False)
    truth, journal = some.truth(learner), some.journal()
    psi = journal.mixing * (journal.updates @ np.asarray(learner.slope))[:, None, :]
    exact = replace(journal, lcv=np.repeat(psi[..., None], 3, axis=-1))
    trip = traced(exact.mixing, exact.lcv)
    np.testing.assert_allclose(trip[..., 0], truth, atol=1e-5)
    combined = mean_of_units(trip, trip)
    assert abs(combined[..., 0] - truth).max() > 0.01 * abs(truth).max()
