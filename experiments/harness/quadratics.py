"""Federations whose clients have quadratic losses that differ, and what theory says of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import trip_jax as tj
from trip_jax.data.federation import ClientData
from trip_jax.simulation.history import Snapshot
from trip_jax.topology import Topology


@dataclass(frozen=True)
class Quadratics:
    """Losses 1 + sum_d a_id (theta_d - b_id)^2 / 2 of clients i, as examples that hold a and b.

    A classifier has such a loss if the logit of the wrong class is log(exp(loss) - 1).
    """

    a: Float[np.ndarray, "n D"]
    b: Float[np.ndarray, "n D"]

    @classmethod
    def drawn(cls, n: int, seed: int) -> "Quadratics":
        rng = np.random.default_rng([seed, n, 1])
        return cls(rng.uniform(0.5, 2, (n, 3)), rng.normal(2, 1, (n, 3)))

    @property
    def optimum(self) -> Float[np.ndarray, " D"]:
        """The optimum of the mean of all clients' losses."""
        found: Float[np.ndarray, " D"] = (self.a * self.b).sum(axis=0) / self.a.sum(axis=0)
        return found

    def data(self) -> ClientData:
        """Two examples a client, one of each class."""
        n, labels = len(self.a), np.tile(np.array([0, 1], np.int32), len(self.a))
        each = np.repeat(np.stack([self.a, self.b], axis=1), 2, axis=0)  # [2n, 2, D]
        marks = np.broadcast_to(labels[:, None, None], (2 * n, 1, self.a.shape[1]))
        examples = jnp.asarray(np.concatenate([each, marks], axis=1), jnp.float32)
        own, classes = jnp.arange(2 * n, dtype=jnp.int32).reshape(n, 2), jnp.asarray(labels)
        sizes = jnp.full(n, 2, jnp.int32)
        return ClientData(examples, classes, own, sizes, examples[:2], classes[:2])

    def model(self) -> tj.Model:
        dimensions = self.a.shape[1]

        def apply(params: Any, examples: Any) -> Any:
            a, b, label = examples[:, 0], examples[:, 1], examples[:, 2, :1]
            loss = 1 + (a * (params["theta"] - b) ** 2).sum(axis=1, keepdims=True) / 2
            wrong = loss + jnp.log1p(-jnp.exp(-loss))
            return jnp.concatenate([label * wrong, (1 - label) * wrong], axis=1)

        return tj.Model(lambda key, examples: {"theta": jnp.zeros(dimensions)}, apply)


class Models(tj.Observer):
    """Keeps what clients have after each round."""

    def __init__(self) -> None:
        self.found: list[Float[np.ndarray, "n D"]] = []

    def on_round(self, past: Snapshot) -> None:
        self.found.append(np.asarray(past.state.models, float))


def trained(
    losses: Quadratics, topology: Topology, rule: str, rounds: int, rate: float, steps: int
) -> Float[np.ndarray, " T1"]:
    """The distance of all models from the optimum, over that at first, round by round."""
    simulation = tj.Simulation(
        losses.model(),
        losses.data(),
        topology,
        aggregation=rule,
        training=tj.Training(
            rounds=rounds, local_epochs=steps, batch_size=2, learning_rate=rate, momentum=0.0
        ),
        contribution=tj.Contribution(utility="loss", method="weights"),
    )
    models = Models()
    simulation.run(models, progress=False)
    start = np.zeros_like(models.found[0])
    far = [np.linalg.norm(now - losses.optimum) for now in (start, *models.found)]
    return np.array(far) / far[0]


def tracked_round(
    losses: Quadratics, matrix: Float[np.ndarray, "n n"], rate: float, steps: int
) -> Callable[[Any, Any], tuple[Any, Any]]:
    """What a round of gradient tracking makes of models and corrections [n, D], by the paper."""

    def after(theta: Any, c: Any) -> tuple[Any, Any]:
        local = theta
        for _ in range(steps):
            local = local - rate * (losses.a * (local - losses.b) + c)
        z = (theta - local) / (rate * steps)
        return matrix @ local, c - z + matrix @ z

    return after


def rate_of(losses: Quadratics, matrices: Sequence[Any], rate: float, steps: int) -> float:
    """The factor by which gradient tracking approaches the optimum in a round, in the long run.

    A round is linear. The mean of corrections stays, which is the one eigenvalue of 1 in each
    dimension, and all others must be smaller.
    """
    n, worst = len(losses.a), 0.0
    for d in range(losses.a.shape[1]):
        one = Quadratics(losses.a[:, [d]], 0 * losses.b[:, [d]])
        rounds = [tracked_round(one, matrix, rate, steps) for matrix in matrices]
        columns = []
        for unit in np.eye(2 * n):
            theta, c = unit[:n, None], unit[n:, None]
            for after in rounds:
                theta, c = after(theta, c)
            columns.append(np.concatenate([theta, c])[:, 0])
        sizes = np.sort(np.abs(np.linalg.eigvals(np.array(columns).T)))
        assert abs(sizes[-1] - 1) < 1e-6
        worst = max(worst, sizes[-2] ** (1 / len(matrices)))
    return worst


def stays_off(losses: Quadratics, matrix: Any, rate: float, pushes: bool = False) -> float:
    """How far the fixed point of one step a round is from the optimum, over how far the start is.

    Args:
        matrix: of Eq. 2; by push-sum the columns sum to 1.
        pushes: whether it is push-sum, else plain mixing.
    """
    x, w = np.zeros_like(losses.b), np.ones((len(losses.a), 1))
    for _ in range(20_000):
        x = matrix @ (x - rate * losses.a * (x / w - losses.b))
        w = matrix @ w if pushes else w
    off = np.linalg.norm(x / w - losses.optimum)
    return float(off / np.linalg.norm(np.zeros_like(x) - losses.optimum))
