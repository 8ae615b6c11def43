"""A model, the data it learns from and is judged by, and the devices that do the work."""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array, lax
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int, Key

from trip_jax.data.federation import ClientData, as_seen
from trip_jax.learning.device_maps import balanced_map
from trip_jax.learning.evaluation import (
    evaluate,
    judged,
    logits_of,
    smooth_utilities,
    totals,
)
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.optimizers import state_arrays, state_of
from trip_jax.learning.precision import PRECISIONS
from trip_jax.learning.privacy import AsTrained, Mechanism
from trip_jax.learning.targets import CLASSES
from trip_jax.learning.training import Trained, Training, train_from
from trip_jax.learning.utilities import UTILITIES, is_mean


@struct.dataclass
class Learner:
    """Trains and evaluates models [R, P] on the clients' data, divided among devices.

    Programs that are given learners of equal settings and shapes are traced and compiled once.

    Attributes:
        training: of a round; how many there are plays no part unless the learning rate follows a
            schedule.
        precision: of matrix products: "float32", on accelerators also "tensorfloat32" (on a TPU
            three products in bfloat16) or "bfloat16".
        client_batch, evaluation_batch: models in one `vmap`.
        third_utility: the utility beside accuracy and loss, see `columns`.
        equal: whether all clients own equally much, which needs no dealing of work.
        counted: [N_test] bool, which rows of the test set are examples; None: all.
        only_for: None, or the token of the one federation that may use programs compiled for this
            learner, see `trip_jax.programs.token_of`.
        mechanism: what of its training leaves a client.
        given: an optimiser in place of the one that `training` names.
    """

    model: FlatModel
    data: ClientData
    training: Training = struct.field(pytree_node=False)
    mesh: Mesh = struct.field(pytree_node=False)
    precision: str = struct.field(pytree_node=False)
    client_batch: int = struct.field(pytree_node=False)
    evaluation_batch: int = struct.field(pytree_node=False)
    third_utility: str = struct.field(pytree_node=False, default=UTILITIES[2])
    equal: bool = struct.field(pytree_node=False, default=False)
    only_for: object = struct.field(pytree_node=False, default=None)
    mechanism: Mechanism = AsTrained()
    given: optax.GradientTransformation | None = struct.field(pytree_node=False, default=None)
    counted: Bool[Array, " N_test"] | None = None

    def on(
        self, data: ClientData, mechanism: Mechanism | None = None, frozen: Any = None
    ) -> "Learner":
        """The learner with other arrays of data: those that one device is given to work with.

        Args:
            frozen: parameters of the model, if it has any.
        """
        model = self.model if frozen is None else replace(self.model, frozen=frozen)
        return replace(self, model=model, data=data, mechanism=mechanism or self.mechanism)

    @property
    def own_tests(self) -> bool:
        """Whether each client is judged by examples of its own."""
        return self.data.tests is not None

    @property
    def personal(self) -> bool:
        """Whether a model's utility differs between clients: they have own tests or own parts."""
        return self.own_tests or self.model.n_own > 0

    def judging(self, client: Int[Array, ""] | int) -> "Learner":
        """The learner whose test set is that of a client; itself where all share one."""
        tests, sizes = self.data.tests, self.data.test_sizes
        if tests is None or sizes is None:
            return self
        rows = tests[client]
        data = replace(
            self.data,
            test_images=self.data.test_images[rows],
            test_labels=self.data.test_labels[rows],
            tests=None,
            test_sizes=None,
        )
        return replace(self, data=data, counted=jnp.arange(len(rows)) < sizes[client])

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The optimiser, which turns the gradients of a client's minibatches into steps."""
        return self.training.transformation(self.given)

    def optimizer_states(self, models: Float[Array, "n P"]) -> dict[str, Array] | None:
        """The optimiser states [n, ...] with which clients begin a run; None if none are kept."""

        def begin(row: Float[Array, " P"]) -> dict[str, Array]:
            return state_arrays(self.optimizer.init(self._trained(row)))

        return jax.vmap(begin)(models) or None if self.training.keeps_state else None

    def _trained(self, row: Float[Array, " P"]) -> Any:
        """The parameters of a model that are trained, without its statistics."""
        return self.model.model.divided(self.model.unravel(row))[0]

    def train(
        self,
        models: Float[Array, "R P"],
        clients: Int[Array, " R"],
        keys: Key[Array, " R"],
        t: Int[Array, ""] | int = 0,
    ) -> Trained:
        """Train(theta, D_i) of Algorithm 1, then the privacy mechanism; see `train_clients`.

        Args:
            t: the round, which schedules of the learning rate read.
        """
        trained, loss, _ = self.train_from(models, clients, keys, t)
        return trained, loss

    def train_from(
        self,
        models: Float[Array, "R P"],
        clients: Int[Array, " R"],
        keys: Key[Array, " R"],
        t: Int[Array, ""] | int,
        states: dict[str, Array] | None = None,
        corrections: Float[Array, "R P"] | None = None,
    ) -> tuple[Float[Array, "R P"], Float[Array, " R"], dict[str, Array] | None]:
        """`train` from optimiser states [R, ...], which it returns as training left them.

        Args:
            corrections: added to every gradient; None: nothing.
        """

        def work(rows: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:
            (starts, clients, keys, *beside), (models, t, *own) = rows, shared
            return self.on(*own)._train_rows(models, clients, keys, starts, t, *beside)

        rows = jnp.arange(len(models)), clients, keys, states, corrections
        shared = models, self._read(t), self.data, self.mechanism, self.model.frozen
        cost = None if self.equal else self.data.sizes[clients]
        return cast(Any, balanced_map(self.mesh, work, rows, shared, cost))

    def train_rows(
        self,
        models: Float[Array, "S P"],
        clients: Int[Array, " R"],
        keys: Key[Array, " R"],
        starts: Int[Array, " R"] | None = None,
        t: Int[Array, ""] | int = 0,
        corrections: Float[Array, "R P"] | None = None,
    ) -> Trained:
        """`train` on a single device, from models looked up by `starts` if it is given."""
        given = starts, self._read(t), None, corrections
        trained, loss, _ = self._train_rows(models, clients, keys, *given)
        return trained, loss

    def _read(self, t: Any) -> Any:
        """The round where training depends on it; else None, so that programs do not get it."""
        return None if self.training.rate is None else t

    def _train_rows(
        self,
        models: Array,
        clients: Array,
        keys: Array,
        starts: Any,
        t: Any,
        states: Any,
        corrections: Any = None,
    ) -> Any:
        training = self.training
        optimizer, params = self.optimizer, jax.eval_shape(self._trained, models[0])
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
            trained, loss, after = train_from(
                models,
                clients,
                keys,
                self.data,
                model=self.model,
                optimizer=optimizer,
                local_epochs=training.local_epochs,
                batch_size=training.batch_size,
                client_batch=self.client_batch,
                starts=starts,
                local_steps=training.local_steps,
                proximal=training.proximal,
                rate=training.rate,
                t=t,
                rounds=training.rounds,
                states=None if states is None else state_of(optimizer, params, states),
                corrections=corrections,
            )
        before = models if starts is None else models[starts]
        after = None if states is None else state_arrays(after)
        return self.mechanism(before, trained, keys), loss, after

    def evaluate(
        self, models: Float[Array, "R P"], clients: Int[Array, " R"] | None = None
    ) -> Float[Array, "R 3"]:
        """The utilities of models on the test set: Eval(theta, D_test) of Algorithm 1.

        Args:
            clients: on whose test sets, where each client has its own; None: R = n.
        """
        shared = self.data, self.model.frozen
        if not self.own_tests:

            def work(models: Array, given: tuple[ClientData, Any]) -> Array:
                data, frozen = given
                return self.on(data, frozen=frozen).evaluate_rows(models)

            return cast(Array, balanced_map(self.mesh, work, models, shared))
        if clients is None:
            clients = jnp.arange(len(self.data.sizes))
            assert len(models) == len(clients)

        def judged(rows: tuple[Array, Array], given: tuple[ClientData, Any]) -> Array:
            data, frozen = given
            return self.on(data, frozen=frozen).evaluate_rows(*rows)

        return cast(Array, balanced_map(self.mesh, judged, (models, clients), shared))

    def evaluate_rows(
        self, models: Float[Array, "R P"], clients: Int[Array, " R"] | None = None
    ) -> Float[Array, "R 3"]:
        """`evaluate`, all on one device; `clients` is needed where they have own test sets."""
        if self.own_tests:
            assert clients is not None

            def one(row: tuple[Array, Array]) -> Array:
                model, client = row
                return self.judging(client).evaluate_rows(model[None])[0]

            batch = min(self.evaluation_batch, len(models))
            return lax.map(one, (models, clients), batch_size=batch)
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
            return evaluate(
                models,
                self.data.test_images,
                self.data.test_labels,
                predict=self.model.predict,
                batch=self.evaluation_batch,
                third_utility=self.third_utility,
                real=self.counted,
            )

    def logits(self, models: Float[Array, "R P"]) -> Float[Array, "R N_test classes"]:
        """What models say of the shared test set."""

        def work(models: Array, given: tuple[ClientData, Any]) -> Array:
            local = self.on(given[0], frozen=given[1])
            with jax.default_matmul_precision(PRECISIONS[self.precision]):
                return logits_of(
                    models,
                    local.data.test_images,
                    predict=local.model.predict,
                    batch=self.evaluation_batch,
                )

        shared = self.data, self.model.frozen
        return cast(Array, balanced_map(self.mesh, work, models, shared))

    @property
    def n_logits(self) -> int:
        """How many numbers `logits` gives for a model."""
        examples = jax.ShapeDtypeStruct((1, *self.model.shape), self.model.dtype)
        of_one = jax.eval_shape(FlatModel.predict, self.model, self.model.theta, examples)
        return len(self.data.test_labels) * of_one.shape[-1]

    def judged(self, logits: Float[Array, "*R N_test classes"]) -> Float[Array, "*R 3"]:
        """The utilities of what models say of the shared test set, without another pass."""
        return judged(logits, self.data.test_labels, third_utility=self.third_utility)

    def parts(self, mixed: int) -> int:
        """The parts of the test set for mixtures of so many models, see `FlatModel.parts`."""
        plain = self.model.targets.task == CLASSES
        if self.own_tests or not plain or not is_mean(self.third_utility):
            return 0
        return self.model.parts(mixed, len(self.data.test_labels))

    def seen(self, models: Float[Array, "R P"], part: Array, parts: int) -> Float[Array, "R Q"]:
        """First-layer outputs of models on a part of the test set, on one device."""
        rows, _ = _rows_of(part, parts, len(self.data.test_labels))
        examples = as_seen(self.data.test_images[rows])
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
            see = partial(self.model.seen, examples=examples)
            batch = 2 * self.evaluation_batch  # a first layer is smaller than a whole model
            return lax.map(see, models, batch_size=min(batch, len(models)))

    def evaluate_seen(
        self, seen: Float[Array, "R Q"], part: Array, parts: int
    ) -> Float[Array, "R 3"]:
        """The share of utilities that a part of the test set adds, from `seen`, on one device."""
        n = len(self.data.test_labels)
        rows, real = _rows_of(part, parts, n)
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
            labels, predict = self.data.test_labels[rows], self.model.predict_seen
            return totals(seen, labels, real, predict=predict, third_utility=self.third_utility) / n

    def smooth_utilities(self, theta: Float[Array, " P"]) -> Float[Array, " 3"]:
        """Differentiable utilities of one model on the test set, on one device."""
        with jax.default_matmul_precision(PRECISIONS[self.precision]):
            return smooth_utilities(
                theta,
                self.data.test_images,
                self.data.test_labels,
                apply=self.model.apply,
                third_utility=self.third_utility,
                real=self.counted,
            )


def _rows_of(part: Array, parts: int, n: int) -> tuple[Int[Array, " B"], Bool[Array, " B"]]:
    """The rows of a part of n test examples, and which of these rows no earlier part has."""
    size = -(-n // parts)
    rows = part * size + jnp.arange(size)
    return jnp.minimum(rows, n - 1), rows < n
