"""The methods that can be judged by name: all of `contribution.method`, nulls and variants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

import jax
import numpy as np
from jaxtyping import Float

from trip_jax.attribution import (
    Journal,
    equal,
    traced,
    weights,
    weights_times_gain,
    weights_times_mean_gain,
)
from trip_jax.attribution.predictions import first_logits, played, run_of
from trip_jax.judge.games import (
    LEVELS,
    by_solution,
    of_important_coalitions,
    of_levels,
    of_the_graph,
    of_the_least_core,
    of_unions,
)
from trip_jax.judge.trained import Executed, Trained
from trip_jax.learning.evaluation import THIRD, UTILITIES
from trip_jax.protocol.adversaries import Honest
from trip_jax.protocol.contributions import METHODS as REGISTERED
from trip_jax.protocol.contributions import TRIP
from trip_jax.protocol.methods.facts import MODELS_AND_REPORT, PREDICTIONS, Amount, Costs, Sees
from trip_jax.protocol.methods.method import Method
from trip_jax.protocol.methods.whole_run import WholeRun
from trip_jax.protocol.receivers import NUMBERS, ByReceivers
from trip_jax.settings import refusal, require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.shapley.borders import border_coalitions, border_values

Phi = Float[np.ndarray, "n n 3"]


class Group(Enum):
    """What a judged method is computed from, by which experiments and pages choose methods."""

    NULLS = auto()  # mixing weights and gains, without any coalition
    OF_RUNS = auto()  # models, predictions or reports of the run
    OF_FEW_EXECUTIONS = auto()  # the 2 n + 2 executions at the borders of the truth
    OF_EXECUTIONS = auto()  # more executions than kept truths have


@dataclass(frozen=True)
class Judged:
    """A method and what the judge needs to run it and to list it.

    Attributes:
        name: the name by which the method is asked for.
        phi: what it says of a cell: phi [n, n, 3], phi [n, n] or scores [n].
        costs: what the method costs a client.
        sees: what whoever computes contributions sees.
        made_by: changes when its answers may.
        group: what it is computed from.
        label: its name in tables of experiments, if that is another.
    """

    name: str
    phi: Callable[[Trained], np.ndarray]
    costs: Costs
    sees: str
    made_by: str = ""
    group: Group = Group.OF_RUNS
    label: str = ""


def registered(method: str) -> Judged:
    """The method of a name of `contribution.method`, ready to be judged.

    Gradients are those of the loss, also where the truth is of accuracy, which has none.
    """
    return of_class(method, REGISTERED[method])


def of_class(name: str, method: type[Method], made_by: str = "") -> Judged:
    """A class of `Method`, built with the settings of the cell that it reads."""

    def phi(one: Trained) -> np.ndarray:
        return contributions_of(one, method.build(replace(one.config.contribution, utility="loss")))

    label = str(vars(method).get("label", ""))  # no base class's
    return Judged(name, phi, method.costs, str(method.sees), made_by, label=label)


def contributions_of(one: Trained, method: Method) -> np.ndarray:
    """The contributions by a method: traced from reports by Eq. 3, or when the run is over."""
    return _concluded(one, method, one.journal_of(method))


def _concluded(one: Trained, method: Method, journal: Journal) -> np.ndarray:
    if not isinstance(method, WholeRun):
        return traced(journal.mixing, journal.lcv)
    if method.budget is None:
        return method.attribute(journal, one.learner).phi
    simulation = one.simulation
    key = jax.random.fold_in(simulation.base_key, simulation.n + 1)  # as in a run
    return method.attribute(journal, one.learner, budget=method.budget, key=key).phi


def _of_journal(compute: Callable[[Journal], np.ndarray]) -> Callable[[Trained], np.ndarray]:
    return lambda one: compute(one.journal)


def _by_games(
    third_utility: str = UTILITIES[THIRD], semivalue: str = "shapley", normalization: str = "paper"
) -> Callable[[Trained], Phi]:
    """TRIP-Shapley by another utility, semivalue or normalisation.

    Args:
        third_utility: what all three columns are measured in, if it is no run's own.
    """

    def phi(one: Trained) -> Phi:
        settings = one.config.contribution
        settings = replace(settings, semivalue=semivalue, normalization=normalization)
        journal = one.trajectory.journal(settings.build(), third_utility)
        found = traced(journal.mixing, journal.lcv)
        is_default = third_utility == UTILITIES[THIRD]
        return found if is_default else np.broadcast_to(found[..., THIRD:], found.shape)

    return phi


def _by_few_executions(one: Trained) -> Phi:
    """Estimates from executed coalitions of one client and of all clients but one."""
    inside, utilities = _at_the_borders(one)
    return np.moveaxis(border_values(inside, utilities)[0], 0, 1)


def _by_corrected_predictions(one: Trained) -> Phi:
    """Shapley values of the replay plus those of its errors in executed coalitions."""
    settings = replace(one.config.contribution, method="predictions")
    journal, learner = one.journal_of(settings.build()), one.learner
    labels, (few, executed) = np.asarray(learner.data.test_labels), _at_the_borders(one)
    run = run_of(journal, first_logits(journal, learner), labels)
    n = few.shape[1]
    everyone = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)
    replayed = played(run, learner, everyone)
    errs = executed - replayed[few @ (1 << np.arange(n))]
    return np.moveaxis(game_values(replayed) + border_values(few, errs)[0], 0, 1)


def _by_checked_predictions(one: Trained) -> Phi:
    """`predictions` with the check by receivers."""
    check = ByReceivers()
    settings = replace(one.config.contribution, method="predictions")
    method = settings.build().facing(Honest(), check)
    return _concluded(one, method, one.trajectory.journal(method, check=check))


def _at_the_borders(one: Trained) -> Executed:
    """The 2 n + 2 coalitions of at most one client and of all but one, with their utilities.

    Raises:
        InvalidSetting: the truth drew other coalitions.
    """
    inside, utilities = one.executed()
    rows = {tuple(row): k for k, row in enumerate(inside.tolist())}
    few = border_coalitions(inside.shape[1], 1)
    found = [rows.get(tuple(row)) for row in few.tolist()]
    require(
        None not in found,
        "Methods of 2n + 2 re-executions need a truth that executed them: choose another method, "
        "other cells, or leave out samples.",
    )
    return Executed(few, utilities[np.array(found)])


WITH_GAINS = Costs(evaluations=2, n_bytes=MODELS_AND_REPORT)
"""Each client evaluates what it mixed, and what it would have mixed had nobody trained."""

CHECKED = Costs(
    evaluations=Amount("m + 1", lambda sizes: sizes.m + 1),
    n_bytes=Amount(
        f"4 Q + {4 * NUMBERS} (m - 1)", lambda sizes: 4 * sizes.Q + 4 * NUMBERS * (sizes.m - 1)
    ),
)
"""The costs of `predictions` and of its check where all claims stand (protocol/receivers.py)."""

_FEW = Amount("2 n + 2", lambda sizes: 2 * sizes.n + 2)
_ALL = Amount("2^n", lambda sizes: 2**sizes.n)
_OF_LEVELS = Amount("3 (n + 1)", lambda sizes: (LEVELS + 1) * (sizes.n + 1))
EXECUTIONS = Costs(evaluations=0, final_evaluations=_FEW)
"""The final models of 2 n + 2 executions, whose training comes on top."""

CORRECTED = Costs(evaluations=2, n_bytes=PREDICTIONS, final_evaluations=_FEW)
"""The costs of predictions with executions that correct their replay."""

WHOLE_EXECUTIONS = "trainings of the whole federation without some clients"

_TRIP = REGISTERED[TRIP]

BESIDE: Mapping[str, Judged] = {
    one.name: one
    for one in (
        *(
            Judged(name, _of_journal(null), costs, sees, group=Group.NULLS)
            for name, null, costs, sees in (
                ("equal", equal, Costs(), "nothing"),
                ("weights", weights, Costs(), str(Sees.WEIGHTS)),
                ("weights x gain", weights_times_gain, WITH_GAINS, str(Sees.NEIGHBOURS)),
                ("weights x mean gain", weights_times_mean_gain, WITH_GAINS, str(Sees.NEIGHBOURS)),
            )
        ),
        *(
            Judged(name, phi, _TRIP.costs, str(_TRIP.sees))
            for name, phi in (
                ("TRIP over m", _by_games(normalization="efficient")),
                ("by margin", _by_games("margin")),
                ("by accuracy + margin", _by_games("accuracy+margin")),
                ("beta_16_1", _by_games(semivalue="beta_16_1")),
                ("beta_1_16", _by_games(semivalue="beta_1_16")),
                ("LOO of rounds", _by_games(semivalue="loo", normalization="efficient")),
            )
        ),
        Judged("checked predictions", _by_checked_predictions, CHECKED, str(Sees.PREDICTIONS)),
        *(
            Judged(name, phi, costs, WHOLE_EXECUTIONS, group=Group.OF_FEW_EXECUTIONS)
            for name, phi, costs in (
                ("2n + 2 re-executions", _by_few_executions, EXECUTIONS),
                ("corrected predictions", _by_corrected_predictions, CORRECTED),
            )
        ),
        *(
            Judged(
                name,
                by_solution(of),
                Costs(final_evaluations=executions),
                WHOLE_EXECUTIONS,
                group=Group.OF_EXECUTIONS,
            )
            for name, of, executions in (
                ("Myerson", of_the_graph, _ALL),
                ("Owen", of_unions, _ALL),
                ("least core", of_the_least_core, _ALL),
                ("IPSS", of_important_coalitions, _FEW),
                ("Owen sampling", of_levels, _OF_LEVELS),
            )
        ),
    )
}
"""Judged beside those of `contribution.method`: nulls, variants and executions of the truth."""


def _of_group(group: Group) -> tuple[str, ...]:
    return tuple(name for name, one in BESIDE.items() if one.group is group)


NULLS = _of_group(Group.NULLS)
OF_EXECUTIONS = _of_group(Group.OF_EXECUTIONS)

ALIASES: Mapping[str, str] = {
    one.label: name for name, one in ((it, registered(it)) for it in REGISTERED) if one.label
}
"""Methods of `contribution.method` by their labels."""


def names() -> tuple[str, ...]:
    """All methods that kept truths can judge by name; nulls first."""
    others = [one for one in BESIDE if one not in NULLS and one not in OF_EXECUTIONS]
    return *NULLS, *(one for one in REGISTERED if one not in NULLS), *others


def method_of(name: str) -> Judged:
    """The method of this name or label.

    Raises:
        InvalidSetting: there is none.
    """
    known_as = ALIASES.get(name, name)
    if (spaced := known_as.replace("_", " ")) in BESIDE:
        known_as = spaced
    if known_as in BESIDE:
        return BESIDE[known_as]
    if known_as not in REGISTERED:
        raise InvalidSetting(
            refusal("The method", name, names())
            + " Your own is named by its file, as in mine.py:method."
        )
    return registered(known_as)
