"""Which form of the CNN is fastest here, for training and for evaluation.

    python -m experiments.convolutions [dataset=fashion_mnist,cifar10] [clients=8] [repeats=3]
        [out=DIR]

The paper's CNN on random images of the data set's shape, its convolutions as shifts and products,
pooled by reshape, or XLA's own (see trip_jax/learning/convolution.py), through the loops that runs
use, one client after another and all of them in one `vmap`, on one device. Training is two
minibatches of 32 a client, evaluation 500 images. The first call of each, which compiles, is not
counted; short ones are repeated for a fifth of a second. Prints medians with their range, the
fastest first, and what trip_jax takes on this backend; writes CSV and Markdown.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas

from experiments.benchmarks.timing import spread, timed
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax.data.federation import ClientData
from trip_jax.learning.convolution import FORMS
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.from_flax import from_flax
from trip_jax.learning.learner import Learner
from trip_jax.learning.mesh import mesh_of
from trip_jax.learning.model import Model
from trip_jax.learning.models import CNN, fast_form
from trip_jax.learning.training import Training
from trip_jax.settings.plurals import counted

SHAPES = {"fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
N_CLASSES, BATCH_SIZE, N_TEST = 10, 32, 500
WORKS = ("training", "evaluation")


def convolutions(arguments: Sequence[str]) -> None:
    """Time the forms of convolutions on this machine, print the table and write it."""
    request = Request("convolutions", arguments, ("dataset", "clients", "repeats", "out"))
    n, repeats = request.number("clients", 8, least=1), request.number("repeats", 3, least=1)
    request.refuse_overrides()
    backend = jax.default_backend()
    rows: list[dict[str, Any]] = []
    for dataset in request.among("dataset", tuple(SHAPES)):
        data = _random_data(SHAPES[dataset], n)
        for form, batch in product(FORMS, sorted({1, n})):
            model = from_flax(CNN(N_CLASSES, form=form))
            for work, (run, images) in _works(model, data, batch).items():
                rates = spread([images / one for one in timed({work: run}, repeats)[work]])
                rows.append(
                    {"dataset": dataset, "work": work, "form": form, "models_at_once": batch}
                    | rates
                    | {"taken": form == fast_form(backend) and (backend != "cpu") == (batch > 1)}
                )
                print(f"{dataset}, {work}, {form}, {batch}: {rates['median']:,.0f} images/s")
    frame = pandas.DataFrame(rows)
    fastest_first = [
        row | {"note": "taken by trip_jax" if row["taken"] else ""}
        for _, group in frame.groupby(["dataset", "work"], sort=False)
        for row in group.sort_values("median", ascending=False).to_dict("records")
    ]
    lines = report.table(
        "data set | work | form | models at once | images/s | ",
        "{dataset} | {work} | {form} | {models_at_once} | "
        "{median:,.0f} ({least:,.0f} to {most:,.0f}) | {note}",
        fastest_first,
    )
    device = f"one {jax.devices()[0].device_kind} device, jax {jax.__version__}"
    title = f"{counted(n, 'client')}, {device}"
    written = Report.of(request, request.folder("outputs/benchmark"))
    print(written.write(frame, "Forms of the CNN", title, lines, number=None))


def _random_data(shape: tuple[int, int, int], n: int) -> ClientData:
    rng, examples = np.random.default_rng(0), 2 * BATCH_SIZE

    def draw(count: int) -> tuple[jax.Array, jax.Array]:
        images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        return jnp.asarray(images), jnp.asarray(rng.integers(0, N_CLASSES, count), jnp.int32)

    owned = jnp.arange(n * examples, dtype=jnp.int32).reshape(n, examples)
    sizes = jnp.full(n, examples, jnp.int32)
    return ClientData(*draw(n * examples), owned, sizes, *draw(N_TEST))


def _works(
    network: Model, data: ClientData, batch: int
) -> dict[str, tuple[Callable[[], Any], int]]:
    """What is timed, and how many images it takes in."""
    n = len(data.sizes)
    model = FlatModel.begun(network, jax.random.key(0), data.images.shape[1:])
    models, keys = jnp.tile(model.theta, (n, 1)), jax.random.split(jax.random.key(1), n)
    mesh, training = mesh_of(jax.local_devices()[:1]), Training(batch_size=BATCH_SIZE)
    learner = Learner(model, data, training, mesh, "float32", batch, batch)

    runs = (
        partial(jax.jit(Learner.train_rows), learner, models, jnp.arange(n), keys),
        partial(jax.jit(Learner.evaluate_rows), learner, models),
    )
    images = (int(data.sizes.sum()), n * N_TEST)
    return dict(zip(WORKS, zip(runs, images, strict=True), strict=True))


if __name__ == "__main__":
    run_as_command(convolutions)
