"""Ways to tell contributions beside TRIP's, each against its own equation in NumPy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from tests import reference as ref
from tests.conftest import TINY, Command, config_of, follow, layers, refusal, tiny, tiny_data
from trip_jax import Contribution, Defence, InvalidSetting
from trip_jax.learning.models import mlp
from trip_jax.protocol.algorithm import assess
from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.methods.facts import When
from trip_jax.protocol.methods.shapfed import last_layer
from trip_jax.protocol.robust import Median
from trip_jax.protocol.state import Assessed
from trip_jax.results.meaning import explain, in_a_sentence, unit
from trip_jax.runs.prepare import describe
from trip_jax.simulation import Simulation

N = 4
LOST = 2  # whose model is lost in the second round
OTHERS = [name for name in METHODS if name != "trip" and METHODS[name].told == When.EACH_ROUND]
FIRST, SECOND = 1e-6, 1e-4  # steps of differences; short, for ReLU bends where it likes


def federation(method: str = "trip", **settings: Any) -> Simulation:
    """Four clients of unequal size; directed graphs that differ between two rounds."""
    graphs = [nx.DiGraph([(0, 1), (1, 2), (2, 0), (3, 2), (2, 1)]), nx.DiGraph([(2, 3), (0, 3)])]
    for graph in graphs:
        graph.add_nodes_from(range(N))
    contribution = Contribution("loss", method=method)
    return tiny(graphs, data=tiny_data((12, 7, 16, 5)), contribution=contribution, **settings)


@dataclass(frozen=True)
class Played:
    """A round: models before and after training, who was there, and mixing weights [n, n]."""

    state: Any
    trained: jax.Array
    unsent: jax.Array
    weights: np.ndarray


@pytest.fixture(scope="module")
def rounds() -> list[Played]:
    """Two rounds, which are the same whatever tells contributions."""
    simulation = federation()
    programs = simulation.on_its_data(simulation.compile(simulation.start()))
    played = []
    for t, state in enumerate(follow(simulation).states[:-1]):
        unsent = jnp.arange(N) == (LOST if t else N)
        here, weights = simulation.topology.at(t), np.zeros((N, N))
        for i, slot in np.argwhere(np.asarray(here.mask)):
            j = int(here.members[i, slot])
            weights[i, j] = here.weights[i, slot] * (not unsent[j] or i == j)
        weights /= weights.sum(axis=1, keepdims=True)
        played.append(Played(state, programs.learn(state).trained, unsent, weights))
    return played


def assessed(simulation: Simulation, played: Played) -> Assessed:
    return assess(*simulation.assessing, played.state, played.trained, played.unsent)


def by_member(simulation: Simulation, t: int, lcv: jax.Array) -> np.ndarray:
    """[n, n, U] of [n, M, U]; what stands in other slots must be 0."""
    here, matrix = simulation.topology.at(t), np.zeros((N, N, lcv.shape[-1]))
    assert not np.asarray(lcv)[~np.asarray(here.mask)].any()
    for i, slot in np.argwhere(np.asarray(here.mask)):
        matrix[i, int(here.members[i, slot])] = lcv[i, slot]
    return matrix


class Oracle:
    """Utilities of flat models in float64: accuracy, negative loss, probability."""

    def __init__(self, simulation: Simulation):
        data = simulation.data
        self.test = np.asarray(data.test_images, float), np.asarray(data.test_labels)
        some = simulation.learner.model.theta
        for (kernel, bias), layer in zip(self.layers(some), layers(simulation, some), strict=True):
            np.testing.assert_array_equal(kernel, layer[0])
            np.testing.assert_array_equal(bias, layer[1])

    def layers(self, theta: Any) -> ref.Params:
        """Of the network 9-6-3."""
        parts = np.split(np.asarray(theta, float), np.cumsum([6, 54, 3]))
        return [(parts[1].reshape(9, 6), parts[0]), (parts[3].reshape(6, 3), parts[2])]

    def utilities(self, theta: np.ndarray) -> np.ndarray:
        found = ref.utilities(self.layers(theta), *self.test)
        return np.array([found[name] for name in ("accuracy", "loss", "probability")])  # type: ignore[literal-required]

    def smooth(self, theta: np.ndarray) -> np.ndarray:
        return self.utilities(theta)[[1, 1, 2]]

    def slope(self, theta: np.ndarray, along: np.ndarray) -> np.ndarray:
        """The derivative of smooth utilities in a direction, by differences."""
        ends = (self.smooth(theta + sign * FIRST * along) for sign in (1, -1))
        return (next(ends) - next(ends)) / (2 * FIRST)

    def bend(self, theta: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """The second derivative in two directions."""
        ends = (self.slope(theta + sign * SECOND * other, one) for sign in (1, -1))
        return (next(ends) - next(ends)) / (2 * SECOND)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@dataclass(frozen=True)
class Near:
    """The round of one client: members, weights and models by client."""

    members: list[int]
    w: np.ndarray
    before: np.ndarray
    trained: np.ndarray
    oracle: Oracle

    @property
    def updates(self) -> np.ndarray:
        return self.trained - self.before


Equation = Callable[[Near], dict[int, Any]]


def weights(near: Near) -> dict[int, Any]:
    return {j: near.w[j] for j in near.members}


def gain(near: Near) -> dict[int, Any]:
    after, before = (near.oracle.utilities(near.w @ x) for x in (near.trained, near.before))
    return {j: near.w[j] * (after - before) for j in near.members}


def net_gain(near: Near) -> dict[int, Any]:
    def utilities(inside: ref.Coalition) -> np.ndarray:
        chosen = np.isin(range(N), list(inside))[:, None]
        return near.oracle.utilities(near.w @ np.where(chosen, near.trained, near.before))

    game = {inside: utilities(inside) for inside in ref.coalitions(near.members)}
    values = [
        ref.shapley({s: u[k] for s, u in game.items()}, near.members, "efficient") for k in range(3)
    ]
    lasted = [max(0.0, sum(v.values())) / sum(map(abs, v.values())) for v in values]
    return {j: np.multiply(lasted, [v[j] for v in values]) for j in near.members}


def second_order(near: Near) -> dict[int, Any]:
    base, whole, oracle = near.w @ near.before, near.w @ near.updates, near.oracle
    return {
        j: near.w[j]
        * (oracle.slope(base, near.updates[j]) + oracle.bend(base, near.updates[j], whole) / 2)
        for j in near.members
    }


def dice(near: Near) -> dict[int, Any]:
    mixed = near.w @ near.trained
    return {j: near.w[j] * near.oracle.slope(mixed, near.updates[j]) for j in near.members}


def cgsv(near: Near) -> dict[int, Any]:
    units = {j: near.updates[j] / np.linalg.norm(near.updates[j]) for j in near.members}
    whole = sum(near.w[j] * units[j] for j in near.members)
    return {j: cosine(units[j], whole) for j in near.members}


def shapfed(near: Near) -> dict[int, Any]:
    def rows(theta: np.ndarray) -> np.ndarray:
        kernel, bias = near.oracle.layers(theta)[-1]
        return np.concatenate([kernel.T, bias[:, None]], axis=1)

    mixed = rows(near.w @ near.trained)
    return {
        j: np.mean([cosine(rows(near.trained[j])[c], mixed[c]) for c in range(3)])
        for j in near.members
    }


def fedif(near: Near) -> dict[int, Any]:
    base = near.w @ near.before
    influence = {
        j: near.oracle.slope(base, near.updates[j]) / np.linalg.norm(near.updates[j])
        for j in near.members
    }
    least, most = (end(list(influence.values()), axis=0) for end in (np.min, np.max))
    span = np.where(most > least, most - least, np.inf)  # of one member: 0
    return {j: (one - least) / span for j, one in influence.items()}


EQUATIONS: dict[str, Equation] = {
    equation.__name__: equation
    for equation in (weights, gain, net_gain, second_order, dice, cgsv, shapfed, fedif)
}


@pytest.mark.parametrize("method", OTHERS)
def test_a_method_is_its_equation_on_directed_graphs_that_change_and_lose_models(
    method: str, rounds: list[Played]
) -> None:
    simulation = federation(method)
    oracle = Oracle(simulation)
    for t, played in enumerate(rounds):
        found = assessed(simulation, played).contributions
        before, trained = (np.asarray(x, float) for x in (played.state.models, played.trained))
        expected = np.zeros((N, N, 3))
        for i, w in enumerate(played.weights):
            members = [int(j) for j in np.flatnonzero(w)]
            for j, value in EQUATIONS[method](Near(members, w, before, trained, oracle)).items():
                expected[i, j] = value
        matrix = by_member(simulation, t, found.lcv)
        np.testing.assert_allclose(matrix, expected, atol=2e-5)
        assert np.abs(matrix).max() > 1e-3 and not np.asarray(found.lcv_standard_error).any()
        mixed = [oracle.utilities(w @ trained) for w in played.weights]
        np.testing.assert_allclose(found.utility, mixed, atol=1e-5)


def test_a_method_leaves_learning_alone_and_counts_its_models(rounds: list[Played]) -> None:
    for method, evaluated in (("weights", 1), ("gain", 2)):
        simulation = federation(method)
        assert simulation.coalitions.tolist() == [evaluated * N] * 2
    told = [assessed(federation(method), rounds[0]) for method in ("gain", "trip")]
    np.testing.assert_allclose(*(one.contributions.utility for one in told), atol=1e-6)


def test_gradients_need_a_smooth_utility_and_weighted_means() -> None:
    for method in ("second_order", "dice", "fedif"):
        with pytest.raises(InvalidSetting, match=rf"{method} needs gradients.*utility=loss"):
            tiny(contribution=Contribution(method=method))
    simulation = federation("dice", rules={"aggregate": Median()})
    with pytest.raises(InvalidSetting, match=r"takes mixtures.*set aggregation=weighted_mean"):
        simulation.compile(simulation.start())


def test_settings_that_a_method_has_no_use_for() -> None:
    with pytest.raises(InvalidSetting, match=r"contribution.method must be one of trip, weights"):
        Contribution(method="oracle")
    with pytest.raises(InvalidSetting, match=r"older version: set contribution\.method=trip_and_w"):
        Contribution(method="shrunk")
    with pytest.raises(InvalidSetting, match=r"semivalue=loo is of contribution.method=trip"):
        Contribution(semivalue="loo", method="gain")
    with pytest.raises(InvalidSetting, match=r"defence.c2 with contribution.method=gain\."):
        tiny(contribution=Contribution(method="gain"), defence=Defence(c2=True))
    hub = np.array([12])
    sampled = [method for method in METHODS if Contribution("loss", method=method).samples(hub)]
    assert sampled == ["trip", "net_gain", "trip_and_weights"]


def test_shapfed_finds_the_last_layer_or_says_that_it_cannot() -> None:
    assert last_layer(tiny().learner)[0] == ("params", "Dense_1", "kernel")
    with pytest.raises(InvalidSetting, match=r"not 2: change model.hidden"):
        last_layer(tiny(model=mlp(3, (3,))).learner)


def test_what_contributions_measure_is_said_by_the_method() -> None:
    attributes = {"contribution_utility": "loss", "normalization": "efficient"}
    assert unit(attributes) == "decrease of test loss in nats"
    mixed = attributes | {"contribution_utility": "accuracy+margin"}
    assert unit(mixed) == "the mean of test accuracy and margin of the true class's probability"
    hops = explain(attributes | {"contribution_method": "dice_multi_hop"})[1]
    assert "first order" in hops and "need not sum" in hops
    printed = attributes | {"normalization": "paper"}
    assert unit(printed) == "m × decrease of test loss in nats"
    halved = printed | {"contribution_method": "trip_and_weights"}
    assert unit(halved).startswith("means of rows")
    assert "reported as by contribution.method=trip" in explain(halved)[1]
    by_cosines = attributes | {"contribution_method": "cgsv"}
    assert unit(by_cosines) == "cosines summed over rounds"
    assert "contribution.method=cgsv" in explain(by_cosines)[1]
    assert describe(config_of("contribution.method=cgsv")).endswith("by cgsv")
    assert in_a_sentence("accuracy", "efficient", "gain").endswith("in test accuracy.")


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_the_command_line_takes_a_method(command: Command) -> None:
    outcome = command(*TINY, "contribution.method=cgsv")
    assert outcome.code == 0 and "in cosines summed over rounds" in outcome.out.replace("\n", " ")


def test_the_command_line_refuses_gradients_of_accuracy() -> None:
    assert "accuracy has none" in refusal("contribution.method=dice")
