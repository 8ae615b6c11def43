"""Low-rank adapters of a pretrained transformer: contributions beside the truth, and costs.

    python -m experiments.adapters [n_clients=8] [rounds=3] [seed=0] [borders=2] [big=20] [out=DIR]

The federation of examples/adapters.py: clients tell sections of BBC News from headlines with
MiniLM, frozen but for adapters of the last two layers and a head; up to four in five of a client's
labels are wrong. n_clients on a ring are told of by TRIP-Shapley and by predictions, beside the
truth: Shapley values by re-execution of small and large coalitions (borders=0: of all). `big`
clients on a regular graph learn alike, without truth. Costs are those of the program of one
training step, by XLA's own count, in two forms: x A B beside x W, as trip_jax computes it for dense
layers, and x (W + A B), as for all else. Needs the packages that the example names.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas
from scipy import stats

import trip_jax as tj
from examples.adapters import ADAPTED, LAST, LENGTH, adapted, federation_of, missing
from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax.judge.yardsticks import yardsticks
from trip_jax.learning.evaluation import ACCURACY, THIRD
from trip_jax.learning.flat_model import FlatModel
from trip_jax.settings.errors import InvalidSetting

SETTINGS = {
    "n_clients": (8, 4),
    "rounds": (3, 1),
    "seed": (0, 0),
    "borders": (2, 0),
    "big": (20, 4),
}
"""Defaults, and the least that there may be."""

RANK, BATCH = 8, 8
PATTERNS = {
    "query and value, last two layers": LAST,
    "query and value, all layers": ADAPTED,
    "all kernels": "(attention|inner|outer).*kernel",
}
LARGE = {"width": 2048, "layers": 20, "clients": 100}
"""A transformer of 12 x width^2 x layers = 1.007 billion parameters beside its embeddings."""


def adapters(arguments: Sequence[str]) -> None:
    """Train, execute again, count and write the report."""
    request, numbers = asked(arguments)
    n, rounds, seed, borders, big = numbers
    if (wanted := missing()) is not None:
        raise InvalidSetting(f"experiments.adapters needs packages: {wanted}")
    began, model = time.process_time(), adapted(RANK)
    rows = list(_told(model, n, rounds, seed, borders))
    rows += list(_large_federation(model, big, rounds, seed))
    costs = pandas.DataFrame(list(_costs()))
    frame = pandas.DataFrame(rows)
    title = f"headlines of BBC News, {n} clients on a ring and {big} on a regular graph"
    written = Report.of(request, request.folder("outputs/adapters"))
    seconds = time.process_time() - began
    both = pandas.concat([frame, costs], ignore_index=True)
    print(written.write(both, "Adapters", title, *_sections(frame, costs, model, seconds)))


def asked(arguments: Sequence[str]) -> tuple[Request, list[int]]:
    """What a command line asks for, and the numbers of all settings in their order."""
    request = Request("adapters", arguments, (*SETTINGS, "out"))
    request.refuse_overrides()
    return request, [request.number(name, *bounds) for name, bounds in SETTINGS.items()]


def _told(
    model: tj.Model, n: int, rounds: int, seed: int, borders: int
) -> Iterator[dict[str, Any]]:
    """How far each method is from the truth."""
    given: dict[str, Any] = {"rounds": rounds, "topology": "ring", "seed": seed}
    simulation = federation_of(model, n, method="trip", **given)
    began = time.process_time()
    truth = tj.decentralised_truth(simulation, borders=borders or None)
    seconds = time.process_time() - began
    values = truth.values[..., THIRD]
    levels = simulation.federation.levels
    print(f"truth: {len(truth.inside)} executions, {seconds:.0f} s of CPU", flush=True)

    def row(method: str, phi: np.ndarray, seconds: float) -> dict[str, Any]:
        noise = stats.spearmanr(levels, phi.mean(axis=0)).statistic if np.ptp(phi) else 0.0
        named = {"clients": n, "method": method, "cpu_seconds": seconds, "noise": noise}
        found = yardsticks(phi, values)
        return named | found | {"distance": max(0.0, found["distance"])}  # rounding of 0

    yield row("truth", values, seconds)
    for method in ("trip", "predictions"):
        began = time.process_time()
        result = simulation.with_contribution(
            tj.Contribution(method=method, utility="probability")
        ).run()
        yield row(method, np.asarray(result.phi), time.process_time() - began)
        print(f"{method} {time.process_time() - began:.0f} s of CPU", flush=True)
    yield row("equal", np.ones((n, n)), 0.0)


def _large_federation(model: tj.Model, n: int, rounds: int, seed: int) -> Iterator[dict[str, Any]]:
    """The example's federation, with adapters and with the head alone."""
    for name, one in (("predictions", model), ("predictions, head alone", adapted(pattern=None))):
        simulation = federation_of(one, n, rounds=rounds, seed=seed)
        began = time.process_time()
        result = simulation.run()
        assert simulation.federation.levels is not None
        yield {
            "clients": n,
            "method": name,
            "cpu_seconds": time.process_time() - began,
            "noise": stats.spearmanr(simulation.federation.levels, result.scores).statistic,
            "accuracy": float(np.asarray(result.records.utility)[-1, :, ACCURACY].mean()),
            "bytes": 4 * result.models.shape[1],
            "frozen_bytes": _bytes(simulation.learner.model.frozen),
        }


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def _costs() -> Iterator[dict[str, Any]]:
    """GFLOP of a training step of a minibatch, in two forms."""
    for name, pattern in PATTERNS.items():
        model = adapted(RANK, pattern=pattern)
        flat = FlatModel.begun(model, jax.random.key(0), (LENGTH,), jnp.int32)
        forms: dict[str, Callable[..., Any]] = {
            "apart": model.apply,
            "merged": partial(_merged, model.apply),
        }
        found = {form: _flops(apply, flat) / 1e9 for form, apply in forms.items()}
        yield {"adapted": name, "numbers": flat.theta.size, **found}


def _flops(apply: Callable[..., Any], flat: FlatModel) -> float:
    def step(row: jax.Array, tokens: jax.Array, frozen: Any) -> Any:
        def loss(trained: Any) -> jax.Array:
            logits = apply(trained, tokens, frozen)
            labels = jnp.zeros(BATCH, int)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        return jax.grad(loss)(flat.unravel(row))

    tokens = jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)
    lowered = jax.jit(step).lower(flat.theta, tokens, flat.frozen)
    found: Any = lowered.cost_analysis()
    return float(found["flops"])


def _merged(form: Any, trained: Any, tokens: jax.Array, frozen: Any) -> jax.Array:
    found: jax.Array = form.function(form.adapters.merged(trained, frozen), tokens)
    return found


def _sections(
    frame: pandas.DataFrame, costs: pandas.DataFrame, model: tj.Model, seconds: float
) -> Iterator[str]:
    small, large = frame[frame.accuracy.isna()], frame[frame.accuracy.notna()]
    yield (
        "Beside the truth, by mean probability: distance is the mean cosine distance, Spearman "
        "the mean rank correlation, both within rows; noise is the rank correlation of scores "
        "with the share of wrong labels. CPU time of all cores, compilation included."
    )
    head = "method | distance | Spearman | with noise | CPU, s"
    line = "{method} | {distance:.3f} | {spearman:.3f} | {noise:.3f} | {cpu_seconds:.0f}"
    yield report.table(head, line, small.to_dict("records"))
    yield f"{int(large.clients.iloc[0])} clients, a row of this table each:"
    head = "method | accuracy | with noise | sent by a client, bytes | held once, MB | CPU, s"
    line = "{method} | {accuracy:.3f} | {noise:.3f} | {bytes:,} | {mb:.1f} | {cpu_seconds:.0f}"
    rows = large.assign(mb=large.frozen_bytes / 1e6).astype({"bytes": int})
    yield report.table(head, line, rows.to_dict("records"))
    yield (
        f"A training step of {BATCH} headlines of {LENGTH} tokens at rank {RANK}, in GFLOP by "
        "XLA's count of the program before it is optimised:"
    )
    head = "adapted | trained numbers | x A B beside x W | x (W + A B) | more"
    line = "{adapted} | {numbers:,} | {apart:.2f} | {merged:.2f} | {more:.0%}"
    rows = costs.assign(more=costs.merged / costs.apart - 1)
    yield report.table(head, line, rows.to_dict("records"))
    yield "On paper, query and value of all layers of a transformer of a billion parameters:"
    yield "\n".join(f"- {line}" for line in on_paper(costs))
    yield f"All of this took {seconds / 60:.1f} minutes of CPU time."


def on_paper(costs: pandas.DataFrame) -> Iterator[str]:
    """What a large base would take, by the counts that were measured here."""
    width, layers, n = LARGE["width"], LARGE["layers"], LARGE["clients"]
    base, trained = 12 * width**2 * layers, layers * 2 * RANK * 2 * width
    whole, row = 4 * base / 1e9, 4 * trained / 1e6
    yield (
        f"width {width}, {layers} layers, 12 x width² x layers = {base / 1e9:.3f} billion numbers: "
        f"{2 * base / 1e9:.1f} GB held once in bfloat16"
    )
    yield (
        f"a client trains and sends layers x 2 x rank x 2 x width = {trained / 1e6:.2f} million "
        f"numbers, {row:.1f} MB, where a whole model is {whole:.1f} GB, {1000 * whole / row:,.0f} "
        "times as much"
    )
    yield (
        f"{n} clients, each with its last, its next and its trained row: "
        f"{3 * n * row / 1e3:.1f} GB beside the base, where whole models are "
        f"{3 * n * whole:,.0f} GB"
    )
    encoder = 12 * 384**2 * 6
    (measured,) = costs[costs.adapted == "query and value, all layers"].apart
    per = 1e9 * measured / (BATCH * LENGTH * encoder)
    yield (
        f"a step costs {per:.2f} FLOP for each token and number of the base, as measured, so "
        f"{per * base / 1e9:.1f} GFLOP a token"
    )


if __name__ == "__main__":
    run_as_command(adapters)
