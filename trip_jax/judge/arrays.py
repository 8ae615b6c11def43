"""What a run leaves, as arrays by name, for methods that are functions of arrays.

Letters: n clients, T rounds, D examples of the shared test set, C classes, P parameters.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

import jax.numpy as jnp
import numpy as np

from trip_jax.judge.trained import Trained
from trip_jax.judge.trajectory import said
from trip_jax.protocol.methods.facts import (
    COALITIONS,
    MODELS_AND_REPORT,
    PREDICTIONS,
    UPDATE,
    Amount,
    Costs,
    Sees,
    Sizes,
)


@dataclass(frozen=True)
class Named:
    """An array that a method may ask for.

    Attributes:
        shape: the shape of the array in letters, for tables.
        about: what the array holds, in words.
        of: takes it from a run.
        sees: what the reader of the array sees of clients.
        costs: what it costs a client to make and send it.
    """

    shape: str
    about: str
    of: Callable[[Trained], np.ndarray]
    sees: Sees
    costs: Costs = Costs(evaluations=0)


def _mixing(one: Trained) -> np.ndarray:
    return one.mixing


def _lcv(one: Trained) -> np.ndarray:
    return one.journal.lcv


def _utilities(one: Trained) -> np.ndarray:
    states = [state.utility for state, _ in one.trajectory.rounds]
    final = one.simulation.evaluate(one.trajectory.rounds[-1][1].models)
    return np.stack([*map(np.asarray, states), np.asarray(final)])


def _examples(one: Trained) -> np.ndarray:
    return np.asarray(one.simulation.data.sizes)


def _labels(one: Trained) -> np.ndarray:
    return np.asarray(one.simulation.data.test_labels)


def _predictions(one: Trained) -> np.ndarray:
    rounds = [
        said(*one.simulation.assessing, state, *map(one.learner.logits, (new.trained, new.models)))
        for state, new in one.trajectory.rounds
    ]
    largest = np.finfo(np.float16).max
    return np.stack(rounds).clip(-largest, largest).astype(np.float16)


def _first_predictions(one: Trained) -> np.ndarray:
    theta = jnp.asarray(one.learner.model.theta)[None]
    return np.asarray(one.learner.logits(theta))[0]


def _models(one: Trained) -> np.ndarray:
    rounds = one.trajectory.rounds
    return np.stack([np.asarray(m) for m in (*(s.models for s, _ in rounds), rounds[-1][1].models)])


def _trained(one: Trained) -> np.ndarray:
    return np.stack([np.asarray(learned.trained) for _, learned in one.trajectory.rounds])


_REPORTED = Costs(evaluations=COALITIONS, n_bytes=MODELS_AND_REPORT)
_PREDICTED = Costs(evaluations=2, n_bytes=PREDICTIONS)
_UPDATED = Costs(evaluations=0, n_bytes=UPDATE)

ARRAYS: Mapping[str, Named] = {
    "mixing": Named(
        "[T, n, n]",
        "in row i, by which weights client i mixes the models of a round; rows sum to 1",
        _mixing,
        Sees.WEIGHTS,
    ),
    "examples": Named("[n]", "training examples of each client", _examples, Sees.WEIGHTS),
    "utilities": Named(
        "[T + 1, n, 3]",
        "accuracy, negative loss and probability of each client's model before each round and at "
        "the end",
        _utilities,
        Sees.REPORTS,
        Costs(evaluations=0, n_bytes=Amount("12", lambda sizes: 12)),
    ),
    "lcv": Named(
        "[T, n, n, 3]",
        "in row i, what client i reports of its neighbours in a round: Shapley values of Eq. 4 by "
        "accuracy, loss and probability",
        _lcv,
        Sees.REPORTS,
        _REPORTED,
    ),
    "predictions": Named(
        "[T, n, 2, D, C]",
        "logits that each client claims for its model after training, and for its next model",
        _predictions,
        Sees.PREDICTIONS,
        _PREDICTED,
    ),
    "first_predictions": Named(
        "[D, C]",
        "logits on the test set of the model from which all begin",
        _first_predictions,
        Sees.PREDICTIONS,
    ),
    "labels": Named("[D]", "the classes of the test set", _labels, Sees.PREDICTIONS),
    "models": Named(
        "[T + 1, n, P]",
        "each client's model before each round and at the end",
        _models,
        Sees.ALL_MODELS,
        _UPDATED,
    ),
    "trained": Named(
        "[T, n, P]", "each client's model after training", _trained, Sees.ALL_MODELS, _UPDATED
    ),
}
"""By name."""

MODELS = tuple(name for name, one in ARRAYS.items() if one.sees is Sees.ALL_MODELS)
"""Those that only a party may have that sees all models."""


def arrays_of(one: Trained, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Copies of a run's arrays, which their reader may change."""
    return {name: np.array(ARRAYS[name].of(one)) for name in names}


def sees(names: Iterable[str]) -> str:
    """What the reader of these arrays sees."""
    order = list(Sees)
    found = {ARRAYS[name].sees for name in names}
    return str(max(found, key=order.index)) if found else "nothing"


def costs(names: Iterable[str]) -> Costs:
    """What it costs a client to make and send these arrays; what is shared counts once."""
    parts = list(dict.fromkeys(ARRAYS[name].costs for name in names))
    found: dict[str, Amount] = {}
    for one in fields(Costs):
        amounts = [part.amount(one.name) for part in parts]
        amounts = [amount for amount in amounts if amount.formula != "0"]
        found[one.name] = _sum(amounts)
    return Costs(**found)


def _sum(amounts: list[Amount]) -> Amount:
    if not amounts:
        return Amount("0", lambda sizes: 0)

    def of(sizes: Sizes) -> float:
        return sum(amount.of(sizes) for amount in amounts)

    return Amount(" + ".join(amount.formula for amount in amounts), of)
