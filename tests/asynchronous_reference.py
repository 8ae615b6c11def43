"""Asynchronous TRIP-Shapley in NumPy, event after event: the judge of waves.

As in `reference.py` nothing here is shared with the fast code. Time is a `Fraction`; there are no
arrays of waves, no mailbox with rows, no ages: a message is an object that arrives.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from tests import reference as ref


@dataclass
class Message:
    """What a client sent when it had trained."""

    sent: Fraction
    before: ref.Params  # as it is received: a fake, or compressed
    trained: ref.Params
    phi: ref.FloatArray  # the row of phi that belongs to the model before training


Latency = Callable[[int, int, int], Fraction | None]
"""(sender, receiver, number of the message from 0) -> what it takes; None: it is lost."""


@dataclass
class Asynchronous:
    """What is there at the end of each wave; by client where somebody finished in it."""

    models: list[list[ref.Params]] = field(default_factory=list)
    phis: list[ref.FloatArray] = field(default_factory=list)
    lcv: list[list[ref.Lcv]] = field(default_factory=list)
    reported: list[list[ref.Lcv]] = field(default_factory=list)
    adopted: list[list[ref.Lcv]] = field(default_factory=list)
    c1_flags: list[set[tuple[int, int]]] = field(default_factory=list)
    c2_flags: list[set[int]] = field(default_factory=list)


def newest(
    outbox: Sequence[Message], j: int, i: int, latency: Latency, now: Fraction
) -> int | None:
    """The last of client j's messages that client i has by now."""
    found = None
    for number, message in enumerate(outbox):
        takes = latency(j, i, number)
        if takes is not None and message.sent + takes <= now:
            found = number
    return found


def trip_shapley(
    theta0: ref.Params,
    data: Sequence[tuple[Any, ref.IntArray]],
    test: tuple[Any, ref.IntArray],
    neighbours: Sequence[Mapping[int, float]],
    orders: Sequence[Sequence[Sequence[ref.IntArray]]],
    durations: Sequence[Fraction],
    latency: Latency,
    n_waves: int,
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    utility: ref.Utility = "loss",
    normalization: ref.Normalization = "paper",
    liars: Collection[int] = (),
    fake: Callable[[int, int], ref.Params] | None = None,
    lie_models: bool = False,
    amount: float = 0.0,
    lower_others: bool = False,
    collude: bool = False,
    v_threshold: float | None = None,
    lam: float | None = None,
    threshold: float | None = None,
    thresholding: ref.Thresholding = "soft",
    channel: ref.Channel | None = None,
    trust: ref.Trust | None = None,
    coalition: Collection[int] | None = None,
) -> Asynchronous:
    """As `reference.trip_shapley`, but every client trains at its own pace.

    What the coordinator compares (C2) are the reports of a wave, in which who does not finish
    reports nothing. Draws are those of the wave: orders[t][i], fake(i, t).

    Args:
        neighbours: weights {j: w_ij} of the graph, itself included; those of whom nothing has
            arrived drop out.
        coalition: who trains; others finish, send and mix as they are. None: everyone.
    """
    n, wave = len(data), min(durations)
    models = [ref.copy_params(theta0) for _ in range(n)]
    phi, out = np.zeros((n, n)), Asynchronous()
    outboxes: list[list[Message]] = [[] for _ in range(n)]
    for t in range(n_waves):
        ends: dict[Fraction, list[int]] = {}
        for i in range(n):
            number = 1
            while number * durations[i] <= (t + 1) * wave:
                if number * durations[i] > t * wave:
                    ends.setdefault(number * durations[i], []).append(i)
                number += 1
        lcvs: list[ref.Lcv] = [{} for _ in range(n)]
        reported: list[ref.Lcv] = [{} for _ in range(n)]
        inherited, flags = {}, set()
        for now in sorted(ends):
            trained: dict[int, ref.Params] = {}
            for i in ends[now]:
                trained[i] = models[i]
                if coalition is None or i in coalition:
                    x, y = data[i]
                    trained[i] = ref.train(
                        models[i], x, y, orders[t][i], batch_size, learning_rate, momentum
                    )
            for i in ends[now]:  # all send before anyone mixes
                before, told = models[i], trained[i]
                if lie_models and fake is not None and i in liars:
                    before = fake(i, t)
                if channel is not None:
                    before, told = channel.transmit(i, t, before, told)
                outboxes[i].append(Message(now, before, told, phi[i].copy()))
            after = {}
            for i in ends[now]:
                have = {}
                for j in neighbours[i]:
                    number_of = newest(outboxes[j], j, i, latency, now) if j != i else None
                    if number_of is not None:
                        have[j] = outboxes[j][number_of]
                weights = {j: w for j, w in neighbours[i].items() if j in have or j == i}
                if trust is not None:
                    weights = trust.weighed(i, weights, phi)
                mixes = {j: have[j].trained for j in have} | {i: trained[i]}
                received = {j: have[j].before for j in have} | {i: models[i]}
                rows = {j: have[j].phi for j in have} | {i: phi[i]}
                after[i] = ref.aggregate(mixes, weights)
                if v_threshold is not None:
                    received, refused = ref.filter_pre_training(i, received, *test, v_threshold)
                    flags |= {(i, j) for j in refused}
                if coalition is None:
                    given = mixes, received, weights, *test
                    lcvs[i], _ = ref.local_contribution_vector(*given, utility, normalization)
                    if trust is not None:
                        trust.remember(i, lcvs[i])
                    scale = 1.0 if normalization == "paper" else 1.0 / len(weights)
                    raised = liars if collude else {i}
                    lied = ref.falsify_lcv(lcvs[i], raised, amount * scale, lower_others)
                    reported[i] = lied if i in liars else dict(lcvs[i])
                total = sum(weights.values())
                inherited[i] = [
                    sum(weights[j] * rows[j][k] for j in weights) / total for k in range(n)
                ]
            for i, theta in after.items():
                models[i] = theta
        adopted, c2_flags = [dict(report) for report in reported], [False] * n
        if lam is not None and threshold is not None:
            adopted, c2_flags, _ = ref.detect_outliers(reported, lam, threshold, thresholding)
        new = phi.copy()
        for i in range(n):
            for k in range(n):
                new[i, k] = inherited[i][k] if i in inherited else phi[i, k]
                new[i, k] += adopted[i].get(k, 0.0)
        phi = new
        out.models.append([ref.copy_params(theta) for theta in models])
        out.phis.append(phi)
        out.lcv.append(lcvs)
        out.reported.append(reported)
        out.adopted.append(adopted)
        out.c1_flags.append(flags)
        out.c2_flags.append({i for i in range(n) if c2_flags[i]})
    return out


def shapley_by_retraining(
    n: int, test: tuple[Any, ref.IntArray], utility: ref.Utility, *given: Any, **settings: Any
) -> ref.FloatArray:
    """The ground truth [n, n] under the same schedule; arguments else as in `trip_shapley`."""
    u = {}
    theta0, data, *rest = given
    for s in ref.coalitions(range(n)):
        run = trip_shapley(theta0, data, test, *rest, **settings, coalition=s)
        u[s] = [ref.utilities(theta, *test)[utility] for theta in run.models[-1]]
    phi = np.zeros((n, n))
    for i in range(n):
        values = ref.shapley({s: u[s][i] for s in u}, range(n), "efficient")
        for j in range(n):
            phi[i, j] = values[j]
    return phi
