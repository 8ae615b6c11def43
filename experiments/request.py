"""Which cells of Tables I and II a command line asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.command_line import CHOSEN_BY_GROUP, Arguments
from trip_jax.errors import InvalidSetting
from trip_jax.learning.evaluation import UTILITIES

SMOKE: tuple[str, ...] = ("n_clients=6", "training.rounds=3", "dataset.train_size=384")
SMOKE += ("dataset.test_size=200", "training.learning_rate=0.05")
CPU: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("fashion_mnist", "cnn"): ("dataset.train_size=1280",),
    ("fashion_mnist", "mlp"): ("dataset.train_size=7680",),
    # Smaller minibatches and larger steps, so that few examples teach something.
    ("cifar10", "cnn"): (
        *("dataset.train_size=768", "training.batch_size=8"),
        "training.learning_rate=0.03",
    ),
    ("cifar10", "mlp"): ("dataset.train_size=2560",),
}
"""scale=cpu: a cell takes minutes (MLP), ten to thirty of them (CNN), or about an hour (CNN on
CIFAR-10) on two cores."""

DEFAULTS: Mapping[str, tuple[str, str]] = {
    "smoke": ("digits", "mlp"),
    "cpu": ("fashion_mnist", "cnn"),
    "paper": ("fashion_mnist", "cnn"),
}
"""Data set and model of a scale where nothing else is asked for."""


FIXED = CHOSEN_BY_GROUP | {
    f"contribution.{name}": f"All are measured; {name}={{value}} chooses what is reported."
    for name in ("utility", "normalization")
}
FIXED["contribution.semivalue"] = "Tables are of Shapley values: leave out semivalue={value}."
"""What the user can't choose."""


@dataclass(frozen=True)
class Request:
    """Which cells an experiment is asked for."""

    scale: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    distributions: tuple[str, ...]
    topologies: tuple[str, ...]
    seeds: tuple[int, ...]
    normalizations: tuple[str, ...]
    utilities: tuple[str, ...]
    samples: int | None  # coalitions drawn for ground truths; None: all are executed
    folder: Path
    overrides: tuple[str, ...]  # of the configuration of every cell
    variation: str  # what was asked for beyond scale, data set, model, seeds and folder

    def settings(self, dataset: str, model: str) -> list[str]:
        """What a cell's configuration differs in: by its scale and, before that, as asked for."""
        cpu = CPU.get((dataset, model), CPU["fashion_mnist", "cnn"])
        of_scale = {"smoke": SMOKE, "cpu": cpu, "paper": ()}[self.scale]
        every = (*of_scale, *self.overrides)
        return list({one.partition("=")[0]: one for one in every}.values())


def parse(arguments: Sequence[str], **defaults: Sequence[str]) -> Request:
    """Read the command line.

    Args:
        defaults: `distribution` and `topology` of the experiment; several values of one that has
            a single default are refused.

    Raises:
        InvalidSetting: an argument without "=", or a value that does not exist.
    """
    names = ("scale", "dataset", "model", "distribution", "topology", "seed", "normalization")
    given = Arguments(arguments, (*names, "utility", "samples", "out"), FIXED)
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
        seeds=given.numbers("seed", 0),
        normalizations=given.among("normalization", ("paper", "efficient")),
        utilities=given.among("utility", UTILITIES),
        samples=int(samples) if samples else None,
        folder=Path(given.one("out", f"outputs/tables_{scale}")),
        overrides=given.overrides,
        variation=given.variation(),
    )
