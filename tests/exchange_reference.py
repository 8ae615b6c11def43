"""Push-sum and gradient tracking in NumPy float64 with loops, as their papers print them.

Push-sum carries what it sums, x and w, in place of models; tracking carries gradients. Who is away
is alone and does not train.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tests.reference as ref
from tests.reference import FloatArray, IntArray, Params

Data = Sequence[tuple[npt.ArrayLike, IntArray]]


@dataclass
class Run:
    """What clients have before each round and at the end."""

    models: list[list[Params]]
    phis: list[FloatArray]
    beside: list[Any]  # the weights w [n], or the corrections


def summed(terms: Sequence[tuple[float, Params]]) -> Params:
    """The sum of models times numbers."""
    total = [(0 * kernel, 0 * bias) for kernel, bias in terms[0][1]]
    for number, theta in terms:
        total = ref.add_scaled(total, number, theta)
    return total


def difference(one: Params, other: Params) -> Params:
    return ref.add_scaled(one, -1.0, other)


def contributions(
    members: Collection[int], mixture: Callable[[frozenset[int]], Params], test: Any
) -> dict[int, float]:
    """Eq. 4 by loss of the mixtures in which coalitions have trained."""
    tests = {s: ref.utilities(mixture(s), *test)["loss"] for s in ref.coalitions(members)}
    return ref.shapley(tests, list(members), "paper")


def push_sum(
    theta: Params,
    data: Data,
    test: Any,
    neighbourhoods: Sequence[Sequence[Collection[int]]],
    orders: Any,
    importance: Sequence[float],
    away: Sequence[Collection[int]],
    *settings: float,
) -> Run:
    """Stochastic gradient push of sums x and w, with the update of a round in place of a step."""
    n = len(data)
    w = list(map(float, importance))
    x = [summed([(w[j], theta)]) for j in range(n)]
    run = Run([[theta] * n], [np.zeros((n, n))], [np.array(w)])
    for t, members in enumerate(neighbourhoods):
        receivers = [sum(j in members[i] for i in range(n)) for j in range(n)]
        after = list(x)
        for j in set(range(n)) - set(away[t]):
            model = summed([(1 / w[j], x[j])])
            trained = ref.train(model, *data[j], orders[t][j], *settings)  # type: ignore[arg-type]
            after[j] = ref.add_scaled(x[j], importance[j], difference(trained, model))
        lcvs, weights = [], []
        for i in range(n):
            parts = {j: 1 / receivers[j] for j in members[i]}
            heard = sum(parts[j] * w[j] for j in members[i])

            def mixture(s: frozenset[int], parts: Any = parts, heard: Any = heard) -> Params:
                return summed(
                    [(parts[j] / heard, after[j] if j in s else x[j]) for j in parts]  # noqa: B023
                )

            lcvs.append(contributions(members[i], mixture, test))
            weights.append({j: parts[j] * w[j] for j in members[i]})
        x = [summed([(1 / receivers[j], after[j]) for j in members[i]]) for i in range(n)]
        w = [sum(w[j] / receivers[j] for j in members[i]) for i in range(n)]
        run.models.append([summed([(1 / w[i], x[i])]) for i in range(n)])
        run.phis.append(ref.update_contributions(run.phis[-1], lcvs, weights))
        run.beside.append(np.array(w))
    return run


def tracked_training(
    theta: Params,
    data: tuple[npt.ArrayLike, IntArray],
    orders: Sequence[IntArray],
    correction: Params,
    batch_size: int,
    learning_rate: float,
    momentum: float,
) -> tuple[Params, Params]:
    """SGD along corrected gradients: the model, and the mean of what it stepped along."""
    x, y = np.asarray(data[0], float), np.asarray(data[1])
    batches = [
        order[first : first + batch_size]
        for order in orders
        for first in range(0, len(order), batch_size)
    ]
    trace, total, weight = summed([(0.0, theta)]), summed([(0.0, theta)]), 0.0
    for k, batch in enumerate(batches):
        _, gradient = ref.mlp_loss_and_gradient(theta, x[batch], y[batch])
        gradient = ref.add_scaled(gradient, 1.0, correction)
        trace = ref.add_scaled(gradient, momentum, trace)
        theta = ref.add_scaled(theta, -learning_rate, trace)
        times = sum(momentum**later for later in range(len(batches) - k))
        total, weight = ref.add_scaled(total, times, gradient), weight + times
    return theta, summed([(1 / weight, total)])


def gradient_tracking(
    theta: Params,
    data: Data,
    test: Any,
    neighbourhoods: Sequence[Sequence[Mapping[int, float]]],
    orders: Any,
    away: Sequence[Collection[int]],
    *settings: float,
) -> Run:
    """K-GT with a step of 1 between rounds; `neighbourhoods` hold mixing weights."""
    n = len(data)
    models, nothing = [theta] * n, summed([(0.0, theta)])
    corrections = [nothing] * n
    run = Run([models], [np.zeros((n, n))], [corrections])
    for t, weights in enumerate(neighbourhoods):
        trained, z = list(models), [nothing] * n
        for j in set(range(n)) - set(away[t]):
            given = data[j], orders[t][j], corrections[j]
            trained[j], z[j] = tracked_training(models[j], *given, *settings)  # type: ignore[arg-type]
        shares = [{j: w / sum(of.values()) for j, w in of.items()} for of in map(dict, weights)]
        lcvs = []
        for i in range(n):

            def mixture(s: frozenset[int], share: Any = shares[i]) -> Params:
                return summed(
                    [(share[j], trained[j] if j in s else models[j]) for j in share]  # noqa: B023
                )

            lcvs.append(contributions(shares[i], mixture, test))
        corrections = [
            summed(
                [(1.0, corrections[i]), (-1.0, z[i]), *((a, z[j]) for j, a in shares[i].items())]
            )
            for i in range(n)
        ]
        models = [summed([(a, trained[j]) for j, a in shares[i].items()]) for i in range(n)]
        run.models.append(models)
        run.phis.append(ref.update_contributions(run.phis[-1], lcvs, shares))
        run.beside.append(corrections)
    return run
