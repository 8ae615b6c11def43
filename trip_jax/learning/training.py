"""Local training: every client's epochs or steps of minibatches, over the client axis.

Each client visits its own examples in an order drawn from its key. Step counts follow each
client's own number of examples, so a client padded to the size of a larger one takes no extra
step: neither its parameters nor its optimiser state can change. A model that draws, or has
statistics, sees whole minibatches: the last of an epoch is filled up with examples that the epoch
visited first, which count for statistics and not for the loss.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jaxtyping import Float, Int, Key

from trip_jax.data.federation import ClientData, as_seen
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.layout import MIXED, OWN, Stays, require_pattern
from trip_jax.learning.optimizers import LEARNING_RATES, OPTIMIZERS, Rate
from trip_jax.settings import (
    PURE,
    above_zero,
    at_least,
    choice,
    count,
    execution,
    measured,
    require,
)
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind, read_unless

Trained: TypeAlias = tuple[Float[Array, "*R P"], Float[Array, "*R"]]
"""Models after training, and the mean loss of each one's last epoch, or of all its local steps."""

FRESH, KEPT = "fresh", "kept"
"""What becomes of optimiser states between rounds."""

DRAWS = np.uint32(2**32 - 2)
"""What the key of a client's training in a round folds in for the draws of its model."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Training(Brief):
    """How clients train in each round."""

    rounds: int = measured(10, "rounds")  # how often clients train and exchange models
    # passes of a client over its examples in a round
    local_epochs: int = measured(
        read_unless(1, lambda settings: settings._counts_steps()), "epochs"
    )
    batch_size: int = measured(32, "examples")  # examples of a minibatch
    learning_rate: float = measured(0.01, PURE)  # of a step, before `schedule`
    momentum: float = measured(read_by_kind(0.9), PURE)  # of SGD
    # clients trained in one vmap; None: by backend
    client_batch: int | None = measured(execution(None), "clients")
    # minibatches of a round, in place of epochs
    local_steps: int | None = measured(None, "minibatches")
    optimizer: str = chosen_from(OPTIMIZERS, "sgd")  # which optimiser takes the steps
    # of the learning rate, over all local steps of the run
    schedule: str = "constant"
    weight_decay: float = measured(0.0, PURE)  # decoupled in adamw and lion, else an L2 penalty
    # L2 norm that the gradient of a step has at most
    clip: float | None = measured(None, "L2 norm of a gradient")
    proximal: float = measured(0.0, PURE)  # FedProx: mu of mu/2 |theta - theta^(t)|^2
    optimizer_state: str = FRESH  # at the start of a round: fresh, or kept from the last
    # parameters that stay a client's own: a regular expression, found in paths such as Dense_1/bias
    own: str | None = None
    # of BatchNorm and the like: mixed as parameters are, or each client's own
    statistics: str = MIXED

    def __post_init__(self) -> None:
        check_types("training", self)
        for name in ("rounds", "local_epochs", "batch_size", "client_batch", "local_steps"):
            count(f"training.{name}", getattr(self, name), 1)
        above_zero("training.learning_rate", self.learning_rate)
        require(
            0 <= self.momentum < 1,
            f"training.momentum must be at least 0 and below 1, not {self.momentum}.",
        )
        choice("training.optimizer", self.optimizer, tuple(OPTIMIZERS))
        choice("training.schedule", self.schedule, tuple(LEARNING_RATES))
        choice("training.optimizer_state", self.optimizer_state, (FRESH, KEPT))
        at_least("training.weight_decay", self.weight_decay, 0)
        above_zero("training.clip", self.clip)
        at_least("training.proximal", self.proximal, 0)
        require_pattern("training.own", self.own)
        choice("training.statistics", self.statistics, (MIXED, OWN))

    def _counts_steps(self) -> str | None:
        if self.local_steps is None:
            return None
        return f"training.local_steps={self.local_steps}, which stand in place of epochs"

    @property
    def is_plain(self) -> bool:
        """Whether it is SGD with momentum over whole epochs, and nothing else."""
        known = "rounds", "local_epochs", "batch_size", "learning_rate", "momentum", "client_batch"
        return self == Training(**{name: getattr(self, name) for name in known})

    @property
    def stays(self) -> Stays:
        """Which parameters of a model stay a client's own and are not sent."""
        return Stays(self.own, self.statistics)

    @property
    def keeps_state(self) -> bool:
        """Whether a client's optimiser goes on, in a round, from where its last one ended."""
        return self.optimizer_state == KEPT

    @property
    def rate(self) -> Rate | None:
        """What the learning rate is multiplied by over a run; None where it is constant."""
        return None if self.schedule == "constant" else LEARNING_RATES[self.schedule]

    def transformation(
        self, given: optax.GradientTransformation | None = None
    ) -> optax.GradientTransformation:
        """The optimiser by these settings, at the full learning rate.

        Args:
            given: stands in place of `optimizer`, `learning_rate`, `momentum`, `weight_decay`.
        """
        optimizer = OPTIMIZERS[self.optimizer](self) if given is None else given
        if self.clip is None:
            return optimizer
        return optax.chain(optax.clip_by_global_norm(self.clip), optimizer)

    def steps(self, sizes: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """How many minibatches clients with so many examples visit in a round."""
        if self.local_steps is not None:
            return np.full(len(sizes), self.local_steps)
        return -(-np.asarray(sizes, int) // self.batch_size) * self.local_epochs

    def visits(self, sizes: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """How many examples clients with so many examples visit in a round."""
        sizes = np.asarray(sizes, int)
        if self.local_steps is None:
            return sizes * self.local_epochs
        passes, rest = np.divmod(self.local_steps, -(-sizes // self.batch_size))
        return passes * sizes + np.minimum(rest * self.batch_size, sizes)


def round_keys(
    key: Key[Array, ""], clients: Int[Array, " F"], t: Int[Array, ""] | int
) -> Key[Array, " F"]:
    """A key for each of the clients in round t, whatever the batching and the device."""
    return jax.vmap(lambda i: jax.random.fold_in(jax.random.fold_in(key, i), t))(clients)


def epoch_order(key: Key[Array, ""], n_slots: int, size: Int[Array, ""]) -> Int[Array, " D"]:
    """The order in which one epoch visits the slots 0..size-1; padding comes last.

    The draw of a slot does not depend on how many padding slots follow it.
    """
    draw = jax.random.bits(key, (n_slots,))
    padding = jnp.arange(n_slots) >= size
    return jnp.lexsort((draw, padding))


def train_clients(
    models: Float[Array, "S P"],
    clients: Int[Array, " R"],
    keys: Key[Array, " R"],
    data: ClientData,
    **options: Any,
) -> Trained:
    """Train(theta_i, D_i) of Algorithm 1 for R models, each on the data of one client.

    Args:
        options: as for `train_from`; each starts with a fresh optimiser state.
    """
    trained, losses, _ = train_from(models, clients, keys, data, **options)
    return trained, losses


def train_from(
    models: Float[Array, "S P"],
    clients: Int[Array, " R"],
    keys: Key[Array, " R"],
    data: ClientData,
    *,
    model: FlatModel,
    optimizer: optax.GradientTransformation,
    local_epochs: int,
    batch_size: int,
    client_batch: int,
    starts: Int[Array, " R"] | None = None,
    local_steps: int | None = None,
    proximal: float = 0.0,
    rate: Rate | None = None,
    t: Int[Array, ""] | int | None = None,
    rounds: int = 1,
    states: Any = None,
    corrections: Float[Array, "R P"] | None = None,
) -> tuple[Float[Array, "R P"], Float[Array, " R"], Any]:
    """Train R models, each on the data of one client, from given optimiser states.

    Args:
        starts: which of the models each one starts from; None: there are R, one for each.
        clients, keys: whose examples each model sees, and in which order.
        model: whose params are trained as they are: to slice them out of one vector, and to put
            their gradients in one, takes a thirtieth of a step.
        client_batch: how many models one `vmap` holds; groups follow one another.
        local_steps: minibatches that each model visits, in place of epochs.
        proximal: mu of FedProx (Li et al. 2020), whose loss has mu/2 |theta - theta^(t)|^2 beside.
        rate: multiplies updates by what it makes of the share of the run that is over.
        t, rounds: the round, and how many the run has; read with `rate` alone.
        states: a tree of arrays [R, ...], the state of the optimiser for each model; None: fresh.
        corrections: added to all gradients of each model; None: nothing.

    Returns:
        models, losses, and the states after training; None if none were given.
    """
    n_slots = data.examples.shape[1]
    batch_size = min(batch_size, n_slots)
    padding = -n_slots % batch_size
    network = model.model
    apply = model.bound(network.learn if client_batch == 1 and network.learn else network.apply)
    draws = network.train is not None

    def loss(params, statistics, images, labels, real, key):
        whole = network.joined(params, statistics)
        if network.train is not None:
            logits, whole = network.train(whole, images, key)
        else:
            logits = apply(whole, images)
        value, weight = model.targets.loss(logits, labels, real)
        return value, (network.divided(whole)[1], weight)

    def train(row):
        r, client, key, state, correction = row
        examples, size = data.examples[client], data.sizes[client]
        n_batches = (size + batch_size - 1) // batch_size
        n_steps = n_batches * local_epochs if local_steps is None else local_steps
        # Looked up instead of mapped, which would copy all models.
        before, known = network.divided(model.params(models[r]))
        added = None if correction is None else network.divided(model.unravel(correction))[0]

        def visit(params, state, order_key, first, n):
            """The first n minibatches of an order, of which the first is a step of the round."""
            order = jnp.pad(epoch_order(order_key, n_slots, size), (0, padding))

            def step(s, carry):
                params, (opt_state, statistics), total = carry
                slots = lax.dynamic_slice_in_dim(order, s * batch_size, batch_size)
                places, step_key = s * batch_size + jnp.arange(batch_size), None
                real = (places < size).astype(jnp.float32)
                if draws:  # statistics see a whole minibatch
                    slots = order[places % size]
                    step_key = jax.random.fold_in(jax.random.fold_in(key, DRAWS), first + s)
                batch = examples[slots]
                images, labels = as_seen(data.images[batch]), data.labels[batch]
                (value, (statistics, weight)), gradient = jax.value_and_grad(loss, has_aux=True)(
                    params, statistics, images, labels, real, step_key
                )
                if added is not None:
                    gradient = jax.tree.map(jnp.add, gradient, added)
                if proximal:
                    gradient = jax.tree.map(
                        lambda slope, now, then: slope + proximal * (now - then),
                        gradient,
                        params,
                        before,
                    )
                updates, opt_state = optimizer.update(gradient, opt_state, params)
                if rate is not None:
                    factor = rate((jnp.asarray(t) + (first + s) / n_steps) / rounds)
                    updates = jax.tree.map(lambda update: factor * update, updates)
                total += value * weight
                return optax.apply_updates(params, updates), (opt_state, statistics), total

            return lax.fori_loop(0, n, step, (params, state, 0.0))

        def epoch(carry, given):
            order_key, first = given
            params, state = carry
            params, state, total = visit(params, state, order_key, first, n_batches)
            return (params, state), total / size

        def part(k, carry):
            """The k-th pass over the client's examples, as far as local steps go."""
            params, state, total, seen = carry
            first = k * n_batches
            n = jnp.minimum(n_batches, n_steps - first)
            order_key = jax.random.fold_in(key, k)
            params, state, more = visit(params, state, order_key, first, n)
            return params, state, total + more, seen + jnp.minimum(n * batch_size, size)

        start = before, (optimizer.init(before) if states is None else state, known)
        if local_steps is None:
            counted = draws or rate is not None
            firsts = n_batches * jnp.arange(local_epochs) if counted else None
            orders = jax.random.split(key, local_epochs), firsts
            (params, state), losses = lax.scan(epoch, start, orders)
            lost = losses[-1]
        else:
            n_parts = (n_steps + n_batches - 1) // n_batches
            params, state, total, seen = lax.fori_loop(0, n_parts, part, (*start, 0.0, 0))
            lost = total / seen
        state, statistics = state
        whole = model.ravel(network.joined(params, statistics))
        return whole, lost, None if states is None else state

    # Batches of one, too, are mapped with `batch_size`: XLA's CPU backend runs the matrix products
    # of an unbatched loop body on a path that is twenty times slower.
    first = jnp.arange(len(models)) if starts is None else starts
    rows = first, clients, keys, states, corrections
    return lax.map(train, rows, batch_size=min(client_batch, len(clients)))
