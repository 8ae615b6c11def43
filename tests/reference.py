"""Algorithm 1 of TRIP-Shapley and its ground truths in NumPy float64, loops everywhere.

The fast code is held against this file, so nothing here is shared with it. Clients are integers
0..n-1; whatever belongs to the members of one neighbourhood is a dict keyed by client, and the
keys of that dict are the neighbourhood N^(i,t), client i included.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from math import comb, exp, pi, sqrt
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.integer[Any]]
Params = list[tuple[FloatArray, FloatArray]]
"""An MLP: one (kernel [in, out], bias [out]) a layer, ReLU between layers. The first may be
(running mean [in], nothing), a statistic by which inputs are centred."""
Coalition = frozenset[int]
Lcv = dict[int, float]
"""One local contribution vector on its support; every other entry is zero."""
Report = tuple[int, int, float]
"""(i, j, value): the contribution of client j as reported by client i."""
Test = tuple[npt.ArrayLike, IntArray] | list[tuple[npt.ArrayLike, IntArray]]
"""The shared test set, or a list of each client's own."""
Utility = Literal["accuracy", "loss", "probability"]
Normalization = Literal["paper", "efficient"]
Thresholding = Literal["soft", "hard"]


def layer_inputs(theta: Params, x: npt.ArrayLike) -> tuple[list[FloatArray], FloatArray]:
    """The input of every layer, [B, in] each, and the logits [B, C]."""
    h = np.asarray(x, dtype=np.float64)
    h = h.reshape(len(h), -1)
    inputs = []
    if np.ndim(theta[0][0]) == 1:
        h, theta = h - theta[0][0], theta[1:]
    for layer, (kernel, bias) in enumerate(theta):
        inputs.append(h)
        h = h @ np.asarray(kernel, dtype=np.float64) + np.asarray(bias, dtype=np.float64)
        if layer < len(theta) - 1:
            h = np.maximum(h, 0.0)
    return inputs, h


def mlp_logits(theta: Params, x: npt.ArrayLike) -> FloatArray:
    """Logits [B, C] of the examples x [B, ...], flattened."""
    return layer_inputs(theta, x)[1]


def log_softmax(logits: FloatArray) -> FloatArray:
    """Log-probabilities, row by row."""
    # Subtracting the maximum leaves the value as it is and keeps exp from overflowing.
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_p


def mlp_loss_and_gradient(theta: Params, x: npt.ArrayLike, y: IntArray) -> tuple[float, Params]:
    """Mean softmax cross-entropy over the batch and its gradient, by backpropagation."""
    inputs, logits = layer_inputs(theta, x)
    log_p = log_softmax(logits)
    batch = len(y)
    loss = -sum(float(log_p[b, y[b]]) for b in range(batch)) / batch

    delta = np.exp(log_p)  # d loss / d logits = (softmax - one_hot) / B
    for b in range(batch):
        delta[b, y[b]] -= 1.0
    delta /= batch

    gradient: Params = []
    for layer in reversed(range(len(theta))):
        gradient.insert(0, (inputs[layer].T @ delta, delta.sum(axis=0)))
        if layer > 0:
            kernel = np.asarray(theta[layer][0], dtype=np.float64)
            delta = (delta @ kernel.T) * (inputs[layer] > 0.0)
    return loss, gradient


def train(
    theta: Params,
    x: npt.ArrayLike,
    y: IntArray,
    orders: Sequence[IntArray],
    batch_size: int,
    learning_rate: float,
    momentum: float,
) -> Params:
    """TRAIN(theta, D) of Algorithm 1: local SGD, `orders` holding one visiting order an epoch.

    Momentum starts at zero in each call and runs on across the epochs of a call. The last short
    batch is averaged over the examples that it has.
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y)
    theta = copy_params(theta)
    trace = [(np.zeros_like(kernel), np.zeros_like(bias)) for kernel, bias in theta]
    for order in orders:
        for start in range(0, len(order), batch_size):
            batch = np.asarray(order[start : start + batch_size])
            _, gradient = mlp_loss_and_gradient(theta, x[batch], y[batch])
            for layer in range(len(theta)):
                (kernel, bias), (dk, db), (tk, tb) = theta[layer], gradient[layer], trace[layer]
                tk, tb = dk + momentum * tk, db + momentum * tb
                trace[layer] = (tk, tb)
                theta[layer] = (kernel - learning_rate * tk, bias - learning_rate * tb)
    return theta


def copy_params(theta: Params) -> Params:
    """A float64 copy that shares no memory."""
    return [
        (np.array(kernel, dtype=np.float64), np.array(bias, dtype=np.float64))
        for kernel, bias in theta
    ]


def utilities(theta: Params, x: npt.ArrayLike, y: IntArray) -> dict[str, float]:
    """EVAL(theta, D_test): accuracy, negative mean cross-entropy, mean true-class probability."""
    logits = mlp_logits(theta, x)
    log_p = log_softmax(logits)
    total = {"accuracy": 0.0, "loss": 0.0, "probability": 0.0}
    for b in range(len(y)):
        total["accuracy"] += float(np.argmax(logits[b]) == y[b])
        total["loss"] += float(log_p[b, y[b]])
        total["probability"] += float(np.exp(log_p[b, y[b]]))
    return {name: value / len(y) for name, value in total.items()}


def test_of(test: Test, i: int) -> tuple[npt.ArrayLike, IntArray]:
    """The examples that client i is judged on."""
    return test[i] if isinstance(test, list) else test


def aggregate(models: Mapping[int, Params], weights: Mapping[int, float]) -> Params:
    """Eq. 2: theta_i^(t+1), the mean of the members' models, weighted and renormalised."""
    total = sum(weights.values())
    if not total > 0:
        raise ValueError(f"the mixing weights must have a positive sum, not {total}")
    mixed = []
    for layer, (kernel_0, bias_0) in enumerate(models[next(iter(weights))]):
        kernel, bias = np.zeros(np.shape(kernel_0)), np.zeros(np.shape(bias_0))
        for j in sorted(weights):
            kernel += weights[j] * models[j][layer][0]
            bias += weights[j] * models[j][layer][1]
        mixed.append((kernel / total, bias / total))
    return mixed


def partial_model(
    coalition: Collection[int],
    trained: Mapping[int, Params],
    pre: Mapping[int, Params],
    weights: Mapping[int, float],
) -> Params:
    """Eq. 5: theta_i^(t+1)(S), post-training models inside S and pre-training ones outside.

    The denominator runs over the whole neighbourhood whatever S is.
    """
    chosen = {j: trained[j] if j in coalition else pre[j] for j in weights}
    return aggregate(chosen, weights)


def coalitions(players: Collection[int]) -> Iterator[Coalition]:
    """All subsets of the players, from the empty one up."""
    for size in range(len(players) + 1):
        for members in combinations(sorted(players), size):
            yield frozenset(members)


def shapley(
    u: Mapping[Coalition, float], players: Collection[int], normalization: Normalization
) -> dict[int, float]:
    """Eqs. 1 and 4: the sum over S without j of (u(S + j) - u(S)) / C(m - 1, |S|).

    'paper' is that sum as printed, m times the Shapley value; 'efficient' divides it by m.
    """
    m = len(players)
    values = {}
    for j in sorted(players):
        value = 0.0
        for s in coalitions([k for k in players if k != j]):
            value += (u[s | {j}] - u[s]) / comb(m - 1, len(s))
        if normalization == "efficient":
            value /= m
        elif normalization != "paper":
            raise ValueError(f"unknown normalization {normalization!r}")
        values[j] = value
    return values


def with_own(mixture: Params, mine: Params, own: Collection[int]) -> Params:
    """A mixture of which these layers are a client's own."""
    return [mine[k] if k in own else layer for k, layer in enumerate(mixture)]


def local_contribution_vector(
    trained: Mapping[int, Params],
    pre: Mapping[int, Params],
    weights: Mapping[int, float],
    x_test: npt.ArrayLike,
    y_test: IntArray,
    utility: Utility,
    normalization: Normalization,
    i: int = 0,
    own: Collection[int] = (),
) -> tuple[Lcv, dict[Coalition, float]]:
    """Eq. 4: psi^(i,t) on the neighbourhood, and the table of u^(i,t)(S) that it came from.

    Layers that are client i's `own` are of its model, after training if it is in S.
    """
    u = {}
    for s in coalitions(weights):
        mixture = partial_model(s, trained, pre, weights)
        if own:
            mixture = with_own(mixture, trained[i] if i in s else pre[i], own)
        u[s] = utilities(mixture, x_test, y_test)[utility]
    return shapley(u, list(weights), normalization), u


def filter_pre_training(
    i: int, pre: Mapping[int, Params], x_test: npt.ArrayLike, y_test: IntArray, v_threshold: float
) -> tuple[dict[int, Params], set[int]]:
    """C1, Algorithm 1 lines 8-13: the models that client i goes on with, and whom it flagged.

    `pre` holds what i received and, under i, its own true model. A model less accurate than
    v - v_threshold is replaced by i's own; accuracies are compared whatever the utility is.
    """
    v = utilities(pre[i], x_test, y_test)["accuracy"]
    kept, flagged = dict(pre), set()
    for j in pre:
        if j != i and utilities(pre[j], x_test, y_test)["accuracy"] < v - v_threshold:
            kept[j] = pre[i]
            flagged.add(j)
    return kept, flagged


def falsify_lcv(
    lcv: Mapping[int, float], raised: Collection[int], amount: float, lower_others: bool
) -> Lcv:
    """D2: a liar raises its own entry or those of all liars, and may lower every other one."""
    report = dict(lcv)
    for j in report:
        if j in raised:
            report[j] += amount
        elif lower_others:
            report[j] -= amount
    return report


def threshold_residual(r: float, level: float, thresholding: Thresholding) -> float:
    """Theta(r; level): soft shrinks towards zero by the level, hard keeps or kills."""
    if thresholding not in ("soft", "hard"):
        raise ValueError(f"unknown thresholding {thresholding!r}")
    if abs(r) <= level:
        return 0.0
    if thresholding == "hard":
        return r
    return r - level if r > 0 else r + level


def outlier_objective(
    reports: Sequence[Report], v: Mapping[int, float], gamma: Sequence[float], lam: float
) -> float:
    """Eq. 7: ||p - A v - gamma||^2 + lambda ||gamma||_1, without a factor 1/2."""
    squares = sum((p - v[j] - g) ** 2 for (_, j, p), g in zip(reports, gamma, strict=True))
    return squares + lam * sum(abs(g) for g in gamma)


def theta_ipod(
    reports: Sequence[Report],
    lam: float,
    thresholding: Thresholding = "soft",
    max_iterations: int = 1_000_000,
) -> tuple[dict[int, float], list[float]]:
    """Theta-IPOD on Eqs. 6 and 7: v by client, and gamma in the order of the reports.

    Row k of A is one-hot at j_k, so the least-squares step is a mean over the reports on j. As
    Eq. 7 has no 1/2, gamma minimises it by thresholding at lambda/2. Where the soft minimiser is
    not unique (two reports more than lambda apart) the start, their mean, is what comes out.
    """
    values: dict[int, list[float]] = {}
    for _, j, p in reports:
        values.setdefault(j, []).append(p)
    if thresholding == "hard":
        v = {j: float(np.median(values[j])) for j in sorted(values)}
    else:
        v = {j: float(np.mean(values[j])) for j in sorted(values)}
    gamma = [0.0] * len(reports)
    tolerance = 1e-7 * max((abs(p) for _, _, p in reports), default=0.0)

    for _ in range(max_iterations):
        new_gamma = [threshold_residual(p - v[j], lam / 2, thresholding) for _, j, p in reports]
        sums = dict.fromkeys(v, 0.0)
        for (_, j, p), g in zip(reports, new_gamma, strict=True):
            sums[j] += p - g
        new_v = {j: sums[j] / len(values[j]) for j in v}
        changes = [abs(new_v[j] - v[j]) for j in v]
        changes += [abs(a - b) for a, b in zip(new_gamma, gamma, strict=True)]
        v, gamma = new_v, new_gamma
        # Not a strict comparison: when every report is zero, so is the tolerance.
        if max(changes, default=0.0) <= tolerance:
            return v, gamma
    raise RuntimeError(f"Theta-IPOD did not settle in {max_iterations} iterations")


def detect_outliers(
    lcvs: Sequence[Mapping[int, float]],
    lam: float,
    threshold: float,
    thresholding: Thresholding = "soft",
) -> tuple[list[Lcv], list[bool], list[float]]:
    """C2: the LCVs to go on with, whether each was replaced, and its L2 distance from v.

    The support of an LCV is the set of its keys: a member whose entry is zero counts. What a client
    says of itself has no part in the consensus on it; where nobody else reports on it, it counts as
    zero.
    """
    reports = [(i, j, lcv[j]) for i, lcv in enumerate(lcvs) for j in sorted(lcv) if i != j]
    v, _ = theta_ipod(reports, lam, thresholding)
    adopted, flagged, distances = [], [], []
    for lcv in lcvs:
        distance = sqrt(sum((lcv[j] - v[j]) ** 2 for j in lcv if j in v))
        flagged.append(distance > threshold)
        distances.append(distance)
        adopted.append({j: (v if flagged[-1] else lcv)[j] if j in v else 0.0 for j in lcv})
    return adopted, flagged, distances


def update_contributions(
    phi: FloatArray,
    lcvs: Sequence[Mapping[int, float]],
    weights: Sequence[Mapping[int, float]],
) -> FloatArray:
    """Eq. 3: phi^(t+1) [n, n] from phi^(t), the LCVs and the weights of every neighbourhood.

    What an LCV holds outside the neighbourhood of its reporter is dropped.
    """
    phi = np.asarray(phi, dtype=np.float64)
    n = len(phi)
    new = np.zeros((n, n))
    for i in range(n):
        total = sum(weights[i].values())
        for k in range(n):
            inherited = sum(weights[i][j] * phi[j, k] for j in weights[i]) / total
            new[i, k] = inherited + (lcvs[i].get(k, 0.0) if k in weights[i] else 0.0)
    return new


def flood(
    neighbours: Sequence[Collection[int]],
    owner: int,
    tells: Callable[[int], bool],
    passes: Callable[[int], Literal["as it is", "altered", "not"]],
    lost: Callable[[int, int], bool],
    hops: int | None = None,
) -> tuple[dict[int, int], int, int]:
    """One report on its way from neighbour to neighbour, hop by hop.

    Args:
        tells: whether the owner sends it to that neighbour.
        passes: how a client passes it on to all but the first (of the smallest number) who told it.
        lost: whether it is lost from one client to another.
        hops: None, or how often it is passed on at the most.

    Returns:
        after how many hops each client has it that ever does, how often it was sent, altered or
        not, and how often an altered one arrived.
    """
    hop, parent, messages, refused, now = {owner: 0}, {owner: -1}, 0, 0, [owner]
    while now and (hops is None or hop[now[0]] < hops):
        told: dict[int, list[int]] = {}
        for client in now:
            for other in neighbours[client]:
                if client == owner:
                    how = "as it is" if tells(other) else "not"
                else:
                    how = passes(client) if other != parent[client] else "not"
                messages += how != "not"
                if how != "not" and not lost(client, other):
                    refused += how == "altered"
                    if how == "as it is" and other not in hop:
                        told.setdefault(other, []).append(client)
        for other, tellers in told.items():
            hop[other], parent[other] = hop[now[0]] + 1, min(tellers)
        now = list(told)
    return hop, messages, refused


@dataclass
class Channel:
    """How models are compressed on their way; `left` and `copies` are what is remembered of j."""

    kind: Literal["top_k", "random_k", "quantised", "low_rank"]
    uniform: Callable[[int, int, int], Params]  # of client j in round t: 0 to learn, 1 beside
    share: float = 1.0
    bits: int = 8
    rank: int = 1
    error_feedback: bool = True
    learning: bool = False
    left: dict[int, Params] = field(default_factory=dict)
    copies: dict[int, Params] = field(default_factory=dict)

    def compressed(self, vector: Params, uniform: Params) -> Params:
        """What is received of all numbers of a model."""
        out = [(np.zeros(kernel.shape), np.zeros(bias.shape)) for kernel, bias in vector]
        if self.kind == "low_rank":
            for layer, (kernel, bias) in enumerate(vector):
                out[layer] = nearest_of_rank(kernel, self.rank), bias
            return out
        places = [
            (layer, part, index)
            for layer in range(len(vector))
            for part in range(2)
            for index in np.ndindex(vector[layer][part].shape)
        ]
        size = {place: abs(float(vector[place[0]][place[1]][place[2]])) for place in places}
        drawn = {place: float(uniform[place[0]][place[1]][place[2]]) for place in places}
        if self.kind == "quantised":  # on one scale: models of the tests are no longer than a block
            levels = 2 ** (self.bits - 1) - 1
            scale = max(size.values()) / levels
            for layer, part, index in places if scale > 0 else []:
                steps = float(vector[layer][part][index]) / scale
                out[layer][part][index] = scale * np.floor(steps + drawn[layer, part, index])
            return out
        by = size if self.kind == "top_k" else drawn
        chosen = sorted(places, key=lambda place: -by[place])[: int(np.ceil(self.share * len(by)))]
        for layer, part, index in chosen:
            out[layer][part][index] = vector[layer][part][index]
        return out

    def transmit(self, j: int, t: int, before: Params, trained: Params) -> tuple[Params, Params]:
        """Client j's models as they are received, before and after training."""
        received = trained
        if self.learning:
            news = add_scaled(trained, -1.0, self.copies[j])
            received = add_scaled(self.copies[j], 1.0, self.compressed(news, self.uniform(j, t, 0)))
            self.copies[j] = received
        delta = add_scaled(received, -1.0, before)
        if self.error_feedback and j in self.left:
            delta = add_scaled(delta, 1.0, self.left[j])
        told = self.compressed(delta, self.uniform(j, t, 1))
        self.left[j] = add_scaled(delta, -1.0, told)
        return add_scaled(received, -1.0, told), received


def nearest_of_rank(kernel: FloatArray, rank: int) -> FloatArray:
    """The nearest matrix of that rank, by eigenvectors; the kernel if that is no fewer numbers."""
    rows, columns = kernel.shape
    if rank * (rows + columns) >= rows * columns:
        return kernel
    _, vectors = np.linalg.eigh(kernel.T @ kernel)
    first = vectors[:, -rank:]
    nearest: FloatArray = kernel @ first @ first.T
    return nearest


@dataclass
class Trust:
    """How weights follow contributions; `own` is what i has found of j, as a moving average."""

    kind: Literal["own", "phi"]
    beta: float
    floor: float
    memory: float = 0.0
    own: dict[tuple[int, int], float] = field(default_factory=dict)

    def weighed(self, i: int, weights: Mapping[int, float], phi: FloatArray) -> dict[int, float]:
        """The weights of client i's members in a round that begins with phi."""
        if self.kind == "phi":
            credit = {j: float(phi[i, j]) for j in weights}
        else:
            met = [self.own[i, j] for j in weights if (i, j) in self.own]
            usual = sum(met) / len(met) if met else 0.0
            credit = {j: self.own.get((i, j), usual) for j in weights}
        largest = max(credit.values())
        if largest <= 0:
            return dict(weights)
        factor = {j: max(credit[j] / largest, self.floor) ** self.beta for j in weights}
        changed = {j: weights[j] * factor[j] for j in weights}
        return changed if any(changed.values()) else dict(weights)

    def remember(self, i: int, lcv: Lcv) -> None:
        """What client i has found in a round."""
        for j, value in lcv.items():
            before = self.own.get((i, j))
            self.own[i, j] = (
                value if before is None else self.memory * before + (1 - self.memory) * value
            )


@dataclass
class Local:
    """How clients train that do not take plain steps of SGD; `states` has what is kept of i.

    factor(s) multiplies the learning rate once a share s of the run's local steps is over. Adam and
    Lion have the constants of their papers.
    """

    optimizer: Literal["sgd", "adam", "adamw", "lion"]
    rounds: int
    weight_decay: float = 0.0
    clip: float | None = None
    proximal: float = 0.0
    factor: Callable[[float], float] = lambda over: 1.0
    kept: bool = False
    states: dict[int, dict[str, Any]] = field(default_factory=dict)

    def train(
        self,
        i: int,
        t: int,
        theta: Params,
        x: npt.ArrayLike,
        y: IntArray,
        orders: Sequence[IntArray],
        batch_size: int,
        learning_rate: float,
        momentum: float,
    ) -> Params:
        """TRAIN(theta, D_i) in round t, each order cut into minibatches."""
        x, y, before = np.asarray(x, dtype=np.float64), np.asarray(y), copy_params(theta)
        zeros = add_scaled(before, -1.0, before)
        fresh: dict[str, Any] = {"steps": 0, "first": zeros, "second": zeros}
        state = self.states.get(i, fresh) if self.kept else fresh
        batches = [
            np.asarray(order[start : start + batch_size])
            for order in orders
            for start in range(0, len(order), batch_size)
        ]
        for s, batch in enumerate(batches):
            _, gradient = mlp_loss_and_gradient(theta, x[batch], y[batch])
            gradient = add_scaled(gradient, self.proximal, add_scaled(theta, -1.0, before))
            length = sqrt(sum(float((part**2).sum()) for layer in gradient for part in layer))
            if self.clip is not None and length > self.clip:
                gradient = add_scaled(zeros, self.clip / length, gradient)
            over = (t + s / len(batches)) / self.rounds
            rate = learning_rate * self.factor(over)
            state = self.stepped(state, theta, gradient, momentum)
            theta = add_scaled(theta, -rate, state["direction"])
        self.states[i] = state
        return theta

    def stepped(
        self, state: dict[str, Any], theta: Params, gradient: Params, momentum: float
    ) -> dict[str, Any]:
        """The state after a minibatch, with the direction that it steps along."""
        if self.optimizer in ("sgd", "adam"):  # an L2 penalty
            gradient = add_scaled(gradient, self.weight_decay, theta)
        steps = state["steps"] + 1
        found: dict[str, Params] = {"first": [], "second": [], "direction": []}
        for layer, parts in enumerate(gradient):
            new = []
            for k, slope in enumerate(parts):
                m, v = state["first"][layer][k], state["second"][layer][k]
                if self.optimizer == "sgd":
                    m = slope + momentum * m
                    along = m
                elif self.optimizer == "lion":
                    along = np.sign(0.9 * m + 0.1 * slope)
                    m = 0.99 * m + 0.01 * slope
                else:
                    m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
                    unbiased = m / (1 - 0.9**steps), v / (1 - 0.999**steps)
                    along = unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
                if self.optimizer in ("adamw", "lion"):
                    along = along + self.weight_decay * theta[layer][k]
                new.append((m, v, along))
            for name, of_kernel, of_bias in zip(found, *new, strict=True):
                found[name].append((of_kernel, of_bias))
        return {"steps": steps, **found}


@dataclass
class Centred:
    """How clients train who centre minibatches by their mean, and drop some inputs.

    factors(i, t, s) [B, in] multiply the inputs of the s-th minibatch of client i in round t. A
    short minibatch is filled up from the beginning of its order, for the mean alone.
    """

    factors: Callable[[int, int, int], FloatArray]
    kept: float  # of the running mean in a step

    def train(
        self,
        i: int,
        t: int,
        theta: Params,
        x: npt.ArrayLike,
        y: IntArray,
        orders: Sequence[IntArray],
        batch_size: int,
        learning_rate: float,
        momentum: float,
    ) -> Params:
        """TRAIN(theta, D_i) in round t."""
        x, y = np.asarray(x, dtype=np.float64), np.asarray(y)
        (mean, none), *network = copy_params(theta)
        trace, s = add_scaled(network, -1.0, network), 0
        for order in orders:
            for start in range(0, len(order), batch_size):
                real = np.asarray(order[start : start + batch_size])
                filled = [order[(start + k) % len(order)] for k in range(batch_size)]
                inputs = x[filled].reshape(batch_size, -1)
                there = inputs.sum(axis=0) / batch_size
                seen = ((inputs - there) * self.factors(i, t, s))[: len(real)]
                _, gradient = mlp_loss_and_gradient(network, seen, y[real])
                trace = add_scaled(gradient, momentum, trace)
                network = add_scaled(network, -learning_rate, trace)
                mean = self.kept * mean + (1 - self.kept) * there
                s += 1
        return [(mean, none), *network]


@dataclass
class Privacy:
    """What leaves a client of its training; `normal` has the numbers of client i in round t."""

    clip: float
    noise: float
    normal: Callable[[int, int], Params]

    def released(self, i: int, t: int, before: Params, trained: Params) -> Params:
        """The model that client i goes on with, and sends."""
        squares = 0.0
        for (kernel, bias), (old_kernel, old_bias) in zip(trained, before, strict=True):
            for new, old in ((kernel, old_kernel), (bias, old_bias)):
                for index in np.ndindex(new.shape):
                    squares += float(new[index] - old[index]) ** 2
        norm = sqrt(squares)
        kept = self.clip / norm if norm > self.clip else 1.0
        clipped = add_scaled(before, kept, add_scaled(trained, -1.0, before))
        return add_scaled(clipped, self.noise * self.clip, self.normal(i, t))


def delta_of_rounds(epsilon: float, noise: float, rounds: int, step: float = 0.02) -> float:
    """The delta at which rounds of `Privacy` keep epsilon, by sums over the privacy loss.

    With another data set the clipped update lies up to 2 clips away, 2 / noise deviations. At x
    deviations from the mean the densities then differ by the factor exp(mu x + mu^2 / 2).
    """
    mu = 2 / noise
    reach = int(np.ceil((mu * mu / 2 + 9 * mu) / step))
    grid = [k * step for k in range(-reach, reach + 1)]
    once = np.array(
        [
            step / (mu * sqrt(2 * pi)) * exp(-((loss - mu * mu / 2) ** 2) / (2 * mu * mu))
            for loss in grid
        ]
    )
    total = once
    for _ in range(rounds - 1):
        total = np.convolve(total, once)
    delta = 0.0
    for k, probability in enumerate(total):
        loss = k * step - rounds * reach * step
        if loss > epsilon:
            delta += float(probability) * (1 - exp(epsilon - loss))
    return delta


@dataclass
class TripShapley:
    """Everything that Algorithm 1 passes through; T rounds, n clients.

    models, accuracies and phis have T + 1 entries, the first for the start; the others have T.
    `lcv` is what clients computed, `reported` what they sent (D2), `adopted` what the coordinator
    used (C2). distances[t] is empty when C2 is off.
    """

    models: list[list[Params]]  # theta_i^(t)
    accuracies: list[list[float]]  # of theta_i^(t) on the test set
    phis: list[FloatArray]  # phi^(t) [n, n]
    trained: list[list[Params]] = field(default_factory=list)  # theta_i^(t+1/2)
    coalition_utilities: list[list[dict[Coalition, float]]] = field(default_factory=list)
    lcv: list[list[Lcv]] = field(default_factory=list)
    reported: list[list[Lcv]] = field(default_factory=list)
    adopted: list[list[Lcv]] = field(default_factory=list)
    c1_flags: list[set[tuple[int, int]]] = field(default_factory=list)  # (receiver i, sender j)
    c2_flags: list[set[int]] = field(default_factory=list)
    distances: list[list[float]] = field(default_factory=list)

    @property
    def phi(self) -> FloatArray:
        """phi^(T) [n, n]: the contribution of j to the final model of i."""
        return self.phis[-1]


def trip_shapley(
    theta0: Params,
    data: Sequence[tuple[npt.ArrayLike, IntArray]],
    test: Test,
    neighbourhoods: Sequence[Sequence[Mapping[int, float]]],
    orders: Sequence[Sequence[Sequence[IntArray]]],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    utility: Utility = "accuracy",
    normalization: Normalization = "paper",
    liars: Collection[int] = (),
    fake: Callable[[int, int], Params] | None = None,
    lie_models: bool = False,
    amount: float = 0.0,
    lower_others: bool = False,
    collude: bool = False,
    v_threshold: float | None = None,
    lam: float | None = None,
    threshold: float | None = None,
    thresholding: Thresholding = "soft",
    channel: Channel | None = None,
    trust: Trust | None = None,
    privacy: Privacy | None = None,
    away: Sequence[Collection[int]] | None = None,
    local: Local | Centred | None = None,
    own: Collection[int] = (),
) -> TripShapley:
    """Algorithm 1, with D1 (`lie_models`), D2 (`amount`), C1 (`v_threshold`), C2 (`lam`).

    neighbourhoods[t][i] is {j: w_j^(i,t)} over N^(i,t); orders[t][i] has one visiting order a
    local epoch. fake(i, t) is what liar i sends in place of its pre-training model. `amount` is
    meant for 'paper'; under 'efficient' an LCV is m times smaller, so the lie is as well. Layers
    that are clients' `own` are neither sent nor mixed.
    """
    if (lam is None) != (threshold is None):
        raise ValueError("C2 takes both lam and threshold, or neither")
    if lie_models and fake is None:
        raise ValueError("lie_models takes a fake")
    n = len(data)
    if any(i not in round_[i] for round_ in neighbourhoods for i in range(n)):
        raise ValueError("every neighbourhood must hold its own client")

    start = [copy_params(theta0) for _ in range(n)]
    if channel is not None:
        channel.copies = {j: copy_params(theta0) for j in range(n)}
    out = TripShapley(
        models=[start],
        accuracies=[
            [utilities(start[i], *test_of(test, i))["accuracy"] for i in range(n)],
        ],
        phis=[np.zeros((n, n))],
    )
    for t, of_graph in enumerate(neighbourhoods):
        weights = [
            dict(of_graph[i]) if trust is None else trust.weighed(i, of_graph[i], out.phis[-1])
            for i in range(n)
        ]
        pre = out.models[-1]
        gone = () if away is None else away[t]
        trained = [
            pre[i]
            if i in gone
            else (partial(local.train, i, t) if local else train)(
                pre[i], *data[i], orders[t][i], batch_size, learning_rate, momentum
            )
            for i in range(n)
        ]
        if privacy is not None:
            trained = [
                pre[i] if i in gone else privacy.released(i, t, pre[i], trained[i])
                for i in range(n)
            ]
        # A liar sends one fake to all; its own view below keeps the true model.
        sent = [
            fake(j, t) if fake is not None and lie_models and j in liars else pre[j]
            for j in range(n)
        ]
        arriving = list(trained)
        if channel is not None:
            for j in set(range(n)) - set(gone):
                sent[j], arriving[j] = channel.transmit(j, t, sent[j], trained[j])

        after, lcvs, tables, reported, c1_flags = [], [], [], [], set()
        for i in range(n):
            x_test, y_test = test_of(test, i)
            members = {j: trained[j] if j == i else arriving[j] for j in weights[i]}
            after.append(with_own(aggregate(members, weights[i]), trained[i], own))
            received = {j: pre[i] if j == i else sent[j] for j in weights[i]}
            if v_threshold is not None:
                received, flagged = filter_pre_training(i, received, x_test, y_test, v_threshold)
                c1_flags |= {(i, j) for j in flagged}
            lcv, table = local_contribution_vector(
                members, received, weights[i], x_test, y_test, utility, normalization, i, own
            )
            lcvs.append(lcv)
            if trust is not None and i not in gone:
                trust.remember(i, lcv)
            tables.append(table)
            report = dict(lcv)
            if i in liars and i not in gone:
                scale = 1.0 if normalization == "paper" else 1.0 / len(weights[i])
                report = falsify_lcv(lcv, liars if collude else {i}, amount * scale, lower_others)
            reported.append(report)

        adopted, c2_flags = [dict(report) for report in reported], [False] * n
        distances: list[float] = []
        if lam is not None and threshold is not None:
            adopted, c2_flags, distances = detect_outliers(reported, lam, threshold, thresholding)

        out.models.append(after)
        out.accuracies.append(
            [utilities(after[i], *test_of(test, i))["accuracy"] for i in range(n)]
        )
        out.phis.append(update_contributions(out.phis[-1], adopted, weights))
        out.trained.append(trained)
        out.coalition_utilities.append(tables)
        out.lcv.append(lcvs)
        out.reported.append(reported)
        out.adopted.append(adopted)
        out.c1_flags.append(c1_flags)
        out.c2_flags.append({i for i in range(n) if c2_flags[i]})
        out.distances.append(distances)
    return out


def retrain(
    theta0: Params,
    data: Sequence[tuple[npt.ArrayLike, IntArray]],
    test: Test,
    neighbourhoods: Sequence[Sequence[Mapping[int, float]]],
    orders: Sequence[Sequence[Sequence[IntArray]]],
    coalition: Collection[int],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    utility: Utility = "accuracy",
    away: Sequence[Collection[int]] | None = None,
    privacy: Privacy | None = None,
    local: Local | Centred | None = None,
    own: Collection[int] = (),
) -> list[float]:
    """u_i(S) of every client's final model when the decentralised run is repeated with S only.

    Clients outside S are dummies: they exchange and aggregate but do not train, so the topology
    and the mixing weights stay as they are. Arguments as in `trip_shapley`.
    """
    n = len(data)
    models = [copy_params(theta0) for _ in range(n)]
    for t, weights in enumerate(neighbourhoods):
        after_training = []
        for i in range(n):
            if i in coalition and (away is None or i not in away[t]):
                trained = (partial(local.train, i, t) if local else train)(
                    models[i], *data[i], orders[t][i], batch_size, learning_rate, momentum
                )
                if privacy is not None:
                    trained = privacy.released(i, t, models[i], trained)
                after_training.append(trained)
            else:
                after_training.append(models[i])
        models = [
            with_own(
                aggregate({j: after_training[j] for j in weights[i]}, weights[i]),
                after_training[i],
                own,
            )
            for i in range(n)
        ]
    return [utilities(models[i], *test_of(test, i))[utility] for i in range(n)]


def shapley_by_retraining(
    theta0: Params,
    data: Sequence[tuple[npt.ArrayLike, IntArray]],
    test: Test,
    neighbourhoods: Sequence[Sequence[Mapping[int, float]]],
    orders: Sequence[Sequence[Sequence[IntArray]]],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    utility: Utility = "accuracy",
    away: Sequence[Collection[int]] | None = None,
    local: Local | Centred | None = None,
    own: Collection[int] = (),
) -> FloatArray:
    """The decentralised ground truth phi [n, n]: row i is the Shapley value of the game u_i."""
    n = len(data)
    u = {}
    for s in coalitions(range(n)):
        u[s] = retrain(
            theta0,
            data,
            test,
            neighbourhoods,
            orders,
            s,
            batch_size=batch_size,
            learning_rate=learning_rate,
            momentum=momentum,
            utility=utility,
            away=away,
            local=local,
            own=own,
        )
    phi = np.zeros((n, n))
    for i in range(n):
        values = shapley({s: u[s][i] for s in u}, range(n), "efficient")
        for j in range(n):
            phi[i, j] = values[j]
    return phi


def add_scaled(theta: Params, factor: float, update: Params) -> Params:
    """theta + factor * update, layer by layer."""
    return [
        (kernel + factor * d_kernel, bias + factor * d_bias)
        for (kernel, bias), (d_kernel, d_bias) in zip(theta, update, strict=True)
    ]


def round_coalition_model(
    before: Params,
    updates: Mapping[int, Params],
    sizes: Sequence[int],
    coalition: Collection[int],
) -> Params:
    """M_S of one round: M^t + sum over i in S of (d_i / d_S) Delta_i; M^t itself when S is empty.

    Unlike in Eq. 5, the weights are renormalised inside S.
    """
    model = copy_params(before)
    d_s = sum(sizes[i] for i in coalition)
    for i in sorted(coalition):
        model = add_scaled(model, sizes[i] / d_s, updates[i])
    return model


def reconstructed_model(
    theta0: Params,
    updates: Sequence[Mapping[int, Params]],
    sizes: Sequence[int],
    coalition: Collection[int],
) -> Params:
    """M_S of the OR baseline: M_0 + sum over t and i in S of (d_i / d_S) Delta_i^t."""
    model = copy_params(theta0)
    for of_round in updates:
        model = round_coalition_model(model, of_round, sizes, coalition)
    return model


def fedavg(
    theta0: Params,
    data: Sequence[tuple[npt.ArrayLike, IntArray]],
    orders: Sequence[Sequence[Sequence[IntArray]]],
    coalition: Collection[int],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    privacy: Privacy | None = None,
) -> tuple[list[Params], list[dict[int, Params]]]:
    """Centralised training with S alone, weighted by data size: the models and the updates.

    Args:
        orders: orders[t][i] has one visiting order a local epoch.

    Returns:
        The global models M^0 to M^T, and for each round {i: trained_i - M^t} over the coalition.
        Without any member every M^t is M^0.
    """
    sizes = [len(y) for _, y in data]
    models, updates = [copy_params(theta0)], []
    for t, of_round in enumerate(orders):
        before = models[-1]
        delta = {}
        for i in sorted(coalition):
            trained = train(before, *data[i], of_round[i], batch_size, learning_rate, momentum)
            if privacy is not None:
                trained = privacy.released(i, t, before, trained)
            delta[i] = add_scaled(trained, -1.0, before)
        updates.append(delta)
        models.append(round_coalition_model(before, delta, sizes, coalition))
    return models, updates


def fedavg_shapley(
    theta0: Params,
    data: Sequence[tuple[npt.ArrayLike, IntArray]],
    test: tuple[npt.ArrayLike, IntArray],
    orders: Sequence[Sequence[Sequence[IntArray]]],
    *,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    utility: Utility = "accuracy",
) -> FloatArray:
    """The centralised ground truth phi [n]: FedAvg from M_0 by each coalition; u({}) = u(M_0)."""
    u = {}
    for s in coalitions(range(len(data))):
        models, _ = fedavg(
            theta0,
            data,
            orders,
            s,
            batch_size=batch_size,
            learning_rate=learning_rate,
            momentum=momentum,
        )
        u[s] = utilities(models[-1], *test)[utility]
    values = shapley(u, range(len(data)), "efficient")
    return np.array([values[j] for j in range(len(data))])
