"""Which cells of Tables I and II a command line asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.command_line import Arguments
from trip_jax.errors import InvalidSetting
from trip_jax.evaluation import UTILITIES

EXAMPLES_PER_CLIENT = {("fashion_mnist", "cnn"): 160, ("cifar10", "cnn"): 32}
EXAMPLES_PER_CLIENT |= {("fashion_mnist", "mlp"): 960, ("cifar10", "mlp"): 320}
"""scale=cpu: so many that a cell takes about ten minutes (CNN) or two (MLP) on two idle cores."""

BATCH_SIZE = {("cifar10", "cnn"): 4}
"""scale=cpu: smaller minibatches, where the usual 32 examples would make ten steps in all."""

N_CLIENTS = 8

DEFAULTS: Mapping[str, tuple[str, str]] = {
    "smoke": ("digits", "mlp"),
    "cpu": ("fashion_mnist", "cnn"),
    "paper": ("fashion_mnist", "cnn"),
}
"""Data set and model of a scale where nothing else is asked for."""


@dataclass(frozen=True)
class Request:
    """Which cells an experiment is asked for."""

    scale: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    distributions: tuple[str, ...]
    topologies: tuple[str, ...]
    seeds: tuple[str, ...]
    normalizations: tuple[str, ...]
    utilities: tuple[str, ...]
    samples: int | None  # coalitions drawn for ground truths; None: all are executed
    folder: Path
    overrides: tuple[str, ...]  # of the configuration of every cell
    variation: str  # what was asked for beyond scale, data set, model, seeds and folder

    def settings(self, dataset: str, model: str) -> list[str]:
        """What a cell's configuration differs in: by its scale and, before that, as asked for."""
        every = [*self._settings_of_scale(dataset, model), *self.overrides]
        return list({one.partition("=")[0]: one for one in every}.values())

    def _settings_of_scale(self, dataset: str, model: str) -> list[str]:
        if self.scale == "cpu":
            examples = EXAMPLES_PER_CLIENT.get((dataset, model), 160)
            smaller = [f"dataset.train_size={N_CLIENTS * examples}"]
            if batch_size := BATCH_SIZE.get((dataset, model)):
                smaller.append(f"training.batch_size={batch_size}")
            return smaller
        if self.scale == "smoke":
            smaller = ("n_clients=6", "training.rounds=3", "dataset.train_size=384")
            return [*smaller, "dataset.test_size=200", "training.learning_rate=0.05"]
        return []


def parse(arguments: Sequence[str], **defaults: Sequence[str]) -> Request:
    """Read the command line.

    Args:
        defaults: `distribution` and `topology` of the experiment; several values of one that has
            a single default are refused.

    Raises:
        InvalidSetting: an argument without "=", or a value that does not exist.
    """
    names = ("scale", "dataset", "model", "distribution", "topology", "seed", "normalization")
    fixed = {
        f"contribution.{name}": f"All are measured; {name}={{value}} chooses what is reported."
        for name in ("utility", "normalization")
    }
    given = Arguments(arguments, (*names, "utility", "samples", "out"), fixed)
    for name, values in defaults.items():
        if len(values) == 1:
            given.one(name, values[0])
    scale = given.scale()
    dataset, model = DEFAULTS[scale]
    samples = given.one("samples", "")
    if samples and not samples.isdecimal():
        raise InvalidSetting(f"samples must be a number of coalitions, not {samples!r}.")
    return Request(
        scale=scale,
        datasets=given.several("dataset", dataset),
        models=given.several("model", model),
        distributions=given.several("distribution", *defaults.get("distribution", ("iid",))),
        topologies=given.several("topology", *defaults.get("topology", ("regular",))),
        seeds=given.several("seed", "0"),
        normalizations=given.among("normalization", ("paper", "efficient")),
        utilities=given.among("utility", UTILITIES),
        samples=int(samples) if samples else None,
        folder=Path(given.one("out", f"outputs/tables_{scale}")),
        overrides=given.overrides,
        variation=given.variation(),
    )
