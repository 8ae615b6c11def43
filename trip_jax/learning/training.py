"""Local training: E epochs of minibatch SGD for every client, over the client axis.

Each client visits its own examples in an order drawn from its key. Step counts follow each
client's own number of examples, so a client padded to the size of a larger one takes no extra
step: neither its parameters nor its optimiser state can change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int, Key

from trip_jax.data.federation import ClientData, as_seen
from trip_jax.learning.model import Params
from trip_jax.settings import above_zero, count, execution, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types

Trained: TypeAlias = tuple[Float[Array, "*R P"], Float[Array, "*R"]]
"""Models after training, and the mean loss of each one's last epoch."""


@dataclass(frozen=True, repr=False)
class Training(Brief):
    """Local SGD; the optimiser state starts afresh in every round."""

    rounds: int = 10
    local_epochs: int = 1
    batch_size: int = 32
    learning_rate: float = 0.01
    momentum: float = 0.9
    client_batch: int | None = execution(None)  # clients trained in one vmap; None: by backend

    def __post_init__(self) -> None:
        check_types("training", self)
        for name in ("rounds", "local_epochs", "batch_size", "client_batch"):
            count(f"training.{name}", getattr(self, name), 1)
        above_zero("training.learning_rate", self.learning_rate)
        require(
            0 <= self.momentum < 1,
            f"training.momentum must be at least 0 and below 1, not {self.momentum}.",
        )


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
    *,
    apply: Callable[[Params, Array], Array],
    unravel: Callable[[Array], Params],
    optimizer: optax.GradientTransformation,
    local_epochs: int,
    batch_size: int,
    client_batch: int,
    starts: Int[Array, " R"] | None = None,
) -> Trained:
    """Train(theta_i, D_i) of Algorithm 1 for R models, each on the data of one client.

    Args:
        starts: which of the models each one starts from; None: there are R, one for each.
        clients, keys: whose examples each model sees, and in which order.
        apply: `(params, images) -> logits`.
        unravel: from a model [P] to params, which are trained as they are: to slice them out of
            one vector, and to put their gradients in one, takes a thirtieth of a step.
        client_batch: how many models one `vmap` holds; groups follow one another.
    """
    n_slots = data.examples.shape[1]
    batch_size = min(batch_size, n_slots)
    padding = -n_slots % batch_size

    def loss(params, images, labels, real):
        logits = apply(params, images).astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return jnp.sum(losses * real) / jnp.sum(real)

    def train(row):
        r, client, key = row
        examples, size = data.examples[client], data.sizes[client]
        n_steps = (size + batch_size - 1) // batch_size

        def epoch(carry, epoch_key):
            order = jnp.pad(epoch_order(epoch_key, n_slots, size), (0, padding))

            def step(s, carry):
                params, opt_state, total = carry
                slots = lax.dynamic_slice_in_dim(order, s * batch_size, batch_size)
                real = (s * batch_size + jnp.arange(batch_size) < size).astype(jnp.float32)
                batch = examples[slots]
                images, labels = as_seen(data.images[batch]), data.labels[batch]
                value, gradient = jax.value_and_grad(loss)(params, images, labels, real)
                updates, opt_state = optimizer.update(gradient, opt_state, params)
                total += value * real.sum()
                return optax.apply_updates(params, updates), opt_state, total

            params, opt_state, total = lax.fori_loop(0, n_steps, step, (*carry, 0.0))
            return (params, opt_state), total / size

        # Looked up instead of mapped, which would copy all models.
        params = unravel(models[r])
        start = (params, optimizer.init(params))
        (params, _), losses = lax.scan(epoch, start, jax.random.split(key, local_epochs))
        return ravel_pytree(params)[0], losses[-1]

    # Batches of one, too, are mapped with `batch_size`: XLA's CPU backend runs the matrix products
    # of an unbatched loop body on a path that is twenty times slower.
    rows = (jnp.arange(len(models)) if starts is None else starts, clients, keys)
    return lax.map(train, rows, batch_size=min(client_batch, len(clients)))
