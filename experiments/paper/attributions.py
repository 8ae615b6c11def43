"""What every method says of a cell, kept beside its ground truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax.numpy as jnp
import networkx as nx
import numpy as np
from jaxtyping import Float

from experiments.harness.kept_runs import Arrays
from experiments.paper.cells import Cell
from experiments.paper.trajectory import Trajectory
from trip_jax.attribution import (
    Attribution,
    Journal,
    by_cascade,
    by_predictions,
    by_reconstruction,
    by_ripple,
    by_surrogate,
    equal,
    traced,
    weights,
    weights_times_gain,
    weights_times_mean_gain,
    with_weights,
)
from trip_jax.attribution.predictions import centred, played, run_of
from trip_jax.learning.evaluation import THIRD, UTILITIES
from trip_jax.learning.learner import Learner
from trip_jax.protocol.contributions import METHODS as REGISTERED
from trip_jax.protocol.contributions import TRIP
from trip_jax.protocol.methods.facts import Sizes
from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.shapley.borders import border_coalitions, border_values
from trip_jax.truth.centralized.games import Attribution as Solution
from trip_jax.truth.centralized.games import Game
from trip_jax.truth.shapley_value import GroundTruth
from trip_jax.truth.solutions import (
    ipss,
    least_core,
    links,
    myerson,
    owen,
    owen_sampling,
    solved,
)

BEST = "surrogate"
"""The method that is nearest to the truth over all cells."""

NULLS = ("equal", "weights", "weights x gain", "weights x mean gain")
"""Methods that look at no coalition."""

RIVALS_OF_COST = "2n + 2 re-executions", "corrected predictions"
"""Methods that take 2 n + 2 executions from the truth, where it has them."""

OF_EXECUTIONS = "Myerson", "Owen", "least core", "IPSS", "Owen sampling"
"""Solutions of the games of a truth that executes all coalitions."""

A_GRADIENT = 3
"""Models on the test set that a gradient counts as."""

Phi = Float[np.ndarray, "n n 3"]


class Attributed:
    """A cell and what methods say of it."""

    def __init__(self, cell: Cell):
        self.cell = cell

    @property
    def learner(self) -> Learner:
        return self.cell.simulation.learner

    @cached_property
    def trajectory(self) -> Trajectory:
        """The cell's run, trained once more for all methods together."""
        return Trajectory.of(self.cell.simulation)

    @cached_property
    def journal(self) -> Journal:
        """Of the run by the cell's own method."""
        return self.trajectory.journal(self.cell.config.contribution.build())

    def phi(self, method: str) -> Phi:
        """What a method says, now or as it was kept."""
        return np.asarray(self._kept(method)["phi"])

    def evaluations(self, method: str) -> int:
        """Models that a method evaluates on the test set."""
        return int(self._kept(method)["evaluations"])

    def _kept(self, name: str) -> Arrays:
        method = METHODS[name]

        def compute() -> Arrays:
            evaluations = np.asarray(method.evaluations(self.journal))
            return {"phi": method.phi(self), "evaluations": evaluations}

        return self.cell.computed(f"method_{name.replace(' ', '_')}", compute)


@dataclass(frozen=True)
class Method:
    """How a method is computed in a cell, and what it takes."""

    phi: Callable[[Attributed], Phi]
    evaluations: Callable[[Journal], int] = lambda _: 0
    """Models on the test set; a gradient counts as `A_GRADIENT`."""


def _by_method(method: str) -> Callable[[Journal], int]:
    """Models that a `contribution.method` evaluates, by what its class says that it costs.

    A run evaluates every next model anyhow: where that is all, it is no cost of the method.
    """
    costs = REGISTERED[method].costs

    def evaluated(name: str, sizes: Sizes) -> int:
        models = int(costs.amount(f"{name}evaluations").of(sizes))
        gradients = int(costs.amount(f"{name}gradients").of(sizes))
        return models * (models > 1) + A_GRADIENT * gradients

    def count(journal: Journal) -> int:
        members = (journal.mixing > 0).sum(axis=2)
        n = members.shape[1]
        found = zip(*np.unique(members, return_counts=True), strict=True)
        in_rounds = sum(int(often) * evaluated("", Sizes(int(m), n, 0)) for m, often in found)
        return in_rounds + n * evaluated("final_", Sizes(n, n, 0))

    return count


def _each(evaluations: int) -> Callable[[Journal], int]:
    """So many by a client in a round."""
    return lambda journal: evaluations * journal.mixing[..., 0].size


def _final_models(journal: Journal) -> int:
    """Of 2 n + 2 executions, whose training comes on top."""
    n = journal.mixing.shape[1]
    return n * (2 * n + 2)


def _of_rounds(method: str) -> Method:
    """A `contribution.method` that looks at one round, traced by Eq. 3.

    Gradients are those of the loss, also where the truth is of accuracy, which has none.
    """

    def phi(one: Attributed) -> Phi:
        settings = replace(one.cell.config.contribution, method=method, utility="loss")
        journal = one.trajectory.journal(settings.build())
        return traced(journal.mixing, journal.lcv)

    return Method(phi, _by_method(method))


def _by_games(
    third_utility: str = UTILITIES[THIRD], semivalue: str = "shapley", normalization: str = "paper"
) -> Method:
    """TRIP-Shapley by another utility, semivalue or normalisation.

    Args:
        third_utility: what all three columns are measured in, if it is no run's own.
    """

    def phi(one: Attributed) -> Phi:
        told = replace(
            one.cell.config.contribution, semivalue=semivalue, normalization=normalization
        )
        journal = one.trajectory.journal(told.build(), third_utility)
        found = traced(journal.mixing, journal.lcv)
        own = third_utility == UTILITIES[THIRD]
        return found if own else np.broadcast_to(found[..., THIRD:], found.shape)

    return Method(phi, _by_method(TRIP))


def _of_run(attribute: Callable[[Journal, Learner], Attribution], method: str) -> Method:
    """A `contribution.method` that waits for the end, computed from the journal."""
    return Method(lambda one: attribute(one.journal, one.learner).phi, _by_method(method))


def _by_predictions(one: Attributed) -> Phi:
    settings = replace(one.cell.config.contribution, method="predictions")
    return by_predictions(one.trajectory.journal(settings.build()), one.learner).phi


def _by_few_executions(one: Attributed) -> Phi:
    """From the coalitions of one client, and those that lack one, of the truth's executions."""
    inside, utilities = _at_the_borders(one)
    return np.moveaxis(border_values(inside, utilities)[0], 0, 1)


def _by_corrected_predictions(one: Attributed) -> Phi:
    """Shapley values are linear: those of the replay, plus those of what it errs by."""
    settings = replace(one.cell.config.contribution, method="predictions")
    journal, learner = one.trajectory.journal(settings.build()), one.learner
    start = np.asarray(centred(learner.logits(jnp.asarray(journal.start[None])))[0])
    run, (few, executed) = run_of(journal, start), _at_the_borders(one)
    n = few.shape[1]
    everyone = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    replayed = played(run, learner, everyone)
    errs = executed - replayed[few @ (1 << np.arange(n))]
    return np.moveaxis(game_values(replayed) + border_values(few, errs)[0], 0, 1)


def _of_games(
    solution: Callable[[Attributed], Callable[[Game], Solution]], executions: Callable[[int], int]
) -> Method:
    """A solution of the games of the truth's executions; NaN where it has none for the graph.

    Args:
        solution: for a cell.
        executions: that it asks for, at most, of n clients.
    """

    def phi(one: Attributed) -> Phi:
        truth = one.cell.decentralised()
        parts = (truth[part] for part in ("values", "standard_error", "inside", "utilities"))
        try:
            return solved(GroundTruth(*parts), solution(one)).values
        except InvalidSetting as reason:
            print(f"left out: {reason}", flush=True)
            return np.full_like(truth["values"], np.nan)

    def evaluations(journal: Journal) -> int:
        n = journal.mixing.shape[1]
        return n * executions(n)

    return Method(phi, evaluations)


def _communities(one: Attributed) -> list[list[int]]:
    """Unions of clients that have more links among each other than to others."""
    matrix = links(one.cell.simulation.topology)
    graph = nx.from_numpy_array(matrix & ~np.eye(len(matrix), dtype=bool))
    return [sorted(union) for union in nx.community.greedy_modularity_communities(graph)]


def _at_the_borders(one: Attributed) -> tuple[np.ndarray, np.ndarray]:
    """The 2 n + 2 coalitions of at most one client and of all but one [K, n]; utilities [K, n, 3].

    Raises:
        InvalidSetting: the truth drew other coalitions.
    """
    truth = one.cell.decentralised()
    rows = {tuple(row): k for k, row in enumerate(truth["inside"].tolist())}
    few = border_coalitions(truth["inside"].shape[1], 1)
    found = [rows.get(tuple(row)) for row in few.tolist()]
    require(
        None not in found,
        "Methods of 2n + 2 re-executions need a truth that has them: leave out samples, or choose "
        "other methods with method=.",
    )
    return few, truth["utilities"][np.array(found)]


def _of_journal(compute: Callable[[Journal], Phi]) -> Callable[[Attributed], Phi]:
    return lambda one: compute(one.journal)


METHODS: Mapping[str, Method] = {
    "TRIP-Shapley": Method(
        _of_journal(lambda journal: traced(journal.mixing, journal.lcv)), _by_method(TRIP)
    ),
    "equal": Method(_of_journal(equal)),
    "weights": Method(_of_journal(weights)),
    "weights x gain": Method(_of_journal(weights_times_gain), _each(2)),
    "weights x mean gain": Method(_of_journal(weights_times_mean_gain), _each(2)),
    "weights x gain over m": _of_rounds("gain"),
    "TRIP over m": _by_games(normalization="efficient"),
    "by margin": _by_games("margin"),
    "by accuracy + margin": _by_games("accuracy+margin"),
    "beta_16_1": _by_games(semivalue="beta_16_1"),
    "beta_1_16": _by_games(semivalue="beta_1_16"),
    "LOO of rounds": _by_games(semivalue="loo", normalization="efficient"),
    "TRIP + weights": _of_run(with_weights, "trip_and_weights"),
    "net gain": _of_rounds("net_gain"),
    "second order": _of_rounds("second_order"),
    "DICE": _of_rounds("dice"),
    "DICE all hops": _of_run(by_cascade, "dice_multi_hop"),
    "Ripple Shapley": _of_run(by_ripple, "ripple"),
    "CGSV": _of_rounds("cgsv"),
    "ShapFed": _of_rounds("shapfed"),
    "FedIF": _of_rounds("fedif"),
    "reconstruction": _of_run(by_reconstruction, "reconstruction"),
    "surrogate": _of_run(by_surrogate, "surrogate"),
    "predictions": Method(_by_predictions, _by_method("predictions")),
    "2n + 2 re-executions": Method(_by_few_executions, _final_models),
    "corrected predictions": Method(_by_corrected_predictions, _final_models),
    "Myerson": _of_games(
        lambda one: partial(myerson, graph=links(one.cell.simulation.topology)), lambda n: 2**n
    ),
    "Owen": _of_games(lambda one: partial(owen, unions=_communities(one)), lambda n: 2**n),
    "least core": _of_games(lambda one: least_core, lambda n: 2**n),
    "IPSS": _of_games(
        lambda one: partial(ipss, budget=2 * one.cell.config.n_clients + 2), lambda n: 2 * n + 2
    ),
    "Owen sampling": _of_games(
        lambda one: partial(owen_sampling, levels=2, draws=1), lambda n: 3 * (n + 1)
    ),
}
"""In the order of tables."""
