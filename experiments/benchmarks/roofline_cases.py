"""What the roofline is told of: training and the evaluation of coalitions, each as runs do it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
from jax import Array

from experiments.benchmarks.program_counts import Counts, counted
from trip_jax.config import Training
from trip_jax.data.federation import ClientData
from trip_jax.learning.convolution import FORMS, Form
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.learner import Learner
from trip_jax.learning.models import CNN, cnn
from trip_jax.learning.training import Trained
from trip_jax.protocol.aggregation import WeightedMean
from trip_jax.protocol.messages import Inbox, Messages
from trip_jax.protocol.methods.trip import coalition_utilities
from trip_jax.shapley import CoalitionRows
from trip_jax.simulation import Simulation
from trip_jax.topology import Neighbourhoods, Topology, build

UNITS = {"evaluation": "models/s", "training": "samples/s"}
"""What is timed, and the unit of its rate."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of networks and batches in the benchmark; tests use smaller ones."""

    image: tuple[int, int, int] = (28, 28, 1)
    samples: int = 8192  # of all clients together, in one epoch
    batch: int = 32
    tested: int = 500
    channels: tuple[int, ...] = (32, 64)
    hidden: int = 128

    def each(self, n: int) -> int:
        """Examples of one client: whole minibatches."""
        return max(1, self.samples // n // self.batch) * self.batch


@dataclass(frozen=True)
class Case:
    """One program.

    Args:
        work: a name in `UNITS`.
        n: clients.
        at_once: models in one `vmap`.
        largest: whether it is the most that is tried of them.
    """

    work: str
    n: int
    form: Form
    precision: str
    at_once: int
    largest: bool = False

    def __str__(self) -> str:
        return ", ".join(map(str, self.named.values()))

    @property
    def named(self) -> dict[str, Any]:
        """The columns of the case's row by which rows are distinguished."""
        return {
            "work": self.work,
            "clients": self.n,
            "form": self.form,
            "precision": self.precision,
            "models_at_once": self.at_once,
        }


@dataclass(frozen=True)
class Program:
    """A jitted function and what it is given.

    Args:
        amount: samples or models of one call.
        passes: of its loop over data.
    """

    function: Any
    given: tuple[Any, ...]
    amount: int
    passes: int

    @cached_property
    def _traced(self) -> Any:
        return self.function.trace(*self.given)

    def counts(self, platform: str) -> Counts:
        """As lowered for a platform, which need not be here: operations in place of kernels."""
        lowered = self._traced.lower(lowering_platforms=(platform,))
        return counted(lowered.as_text("hlo"), self.passes)

    def compiled(self) -> tuple[Callable[[], Any], Counts]:
        """The work on this machine's device: FLOP as lowered, launches and bytes of its kernels."""
        lowered = self._traced.lower()
        compiled = lowered.compile()
        asked = counted(lowered.as_text("hlo"), self.passes)
        kernels = counted(compiled.as_text(), self.passes)
        counts = replace(kernels, flop=asked.flop, products=asked.products)
        return partial(compiled, *self.given), counts


def cases(
    clients: tuple[int, ...], precisions: tuple[str, ...], chunks: tuple[int, ...]
) -> Iterator[Case]:
    """All, in the order of what they say: forms that runs take, evaluation, large chunks first."""
    for form in FORMS:
        for work in UNITS:
            for n in clients:
                most = n if work == "training" else rows_of(n).chunk
                sizes = sorted({min(chunk, most) for chunk in chunks})
                for at_once in reversed(sizes):
                    for precision in precisions:
                        yield Case(work, n, form, precision, at_once, at_once == sizes[-1])


@cache
def topology(n: int) -> Topology:
    """The paper's: a 4-regular graph of few clients, a small world of many."""
    few = nx.circulant_graph(n, [1, 2])
    drawn = few if n < 20 else nx.connected_watts_strogatz_graph(n, 4, 0.1, seed=0)
    return build(drawn, np.ones(n))


def rows_of(n: int, batch: int = 2**30) -> CoalitionRows:
    """The coalition rows of a federation of n clients."""
    n_members = np.asarray(topology(n).at(0).mask).sum(axis=1)[None]
    rows = CoalitionRows.of(n_members, batch=batch)
    return jax.tree.map(lambda field: field[0], rows)


@cache
def federation(n: int, sizes: Sizes) -> Simulation:
    """Clients with images of noise, which take as long as any."""
    rng, each = np.random.default_rng(0), sizes.each(n)

    def draw(count: int) -> tuple[Array, Array]:
        images = rng.integers(0, 256, (count, *sizes.image), dtype=np.uint8)
        return jnp.asarray(images), jnp.asarray(rng.integers(0, 10, count), jnp.int32)

    owned = jnp.arange(n * each, dtype=jnp.int32).reshape(n, each)
    data = ClientData(*draw(n * each), owned, jnp.full(n, each, jnp.int32), *draw(sizes.tested))
    training = Training(rounds=1, batch_size=sizes.batch)
    network = cnn(10, sizes.channels, sizes.hidden)
    return Simulation(network, data, topology(n), training=training)


def program_of(case: Case, sizes: Sizes) -> Program:
    """The program of runs, on one device."""
    simulation = federation(case.n, sizes)
    learner: Learner = simulation.learner
    network = from_flax(CNN(10, sizes.channels, sizes.hidden, case.form))
    learner = replace(
        learner,
        model=replace(learner.model, model=network),
        precision=case.precision,
        client_batch=case.at_once,
        evaluation_batch=case.at_once,
    )
    key = jax.random.key(1)
    models = jnp.tile(learner.model.theta, (case.n, 1))
    if case.work == "training":
        keys = jax.random.split(key, case.n)
        each = sizes.each(case.n)
        train = learner, models, jnp.arange(case.n), keys
        return Program(_TRAIN, train, case.n * each, each // sizes.batch)
    trained = models + 0.1 * jax.random.normal(key, models.shape)
    rows = rows_of(case.n, case.at_once)
    evaluate = learner, rows, topology(case.n).at(0), models, trained
    n_rows = int(rows.n_rows)
    return Program(_EVALUATE, evaluate, n_rows, -(-n_rows // rows.chunk))


def _train(learner: Learner, models: Array, clients: Array, keys: Array) -> Trained:
    return learner.train_rows(models, clients, keys)


def _evaluate(
    learner: Learner, rows: CoalitionRows, nearby: Neighbourhoods, before: Array, trained: Array
) -> Array:
    n = len(before)
    unsent, nobody = jnp.zeros(n, bool), jnp.zeros(0, jnp.int32)
    messages = Messages(before, trained, jnp.zeros(n), unsent, nobody)
    inbox = Inbox(messages, messages, jnp.zeros_like(nearby.mask))
    masks = rows.masks(jnp.zeros((0, 0, nearby.mask.shape[1]), bool))
    return coalition_utilities(inbox, nearby, rows, masks, WeightedMean(), learner)


_TRAIN, _EVALUATE = jax.jit(_train), jax.jit(_evaluate)
