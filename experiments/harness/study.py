"""The federations that an experiment of the paper is asked for."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from experiments.harness.command_line import Request
from experiments.harness.kept_runs import compose_config
from experiments.harness.report import Report
from trip_jax.config import Config
from trip_jax.runs.provenance import result_settings

Settings = tuple[str, ...]


@dataclass(frozen=True)
class Scales:
    """A setting of the paper, and what makes it smaller."""

    config: str  # its name in conf/experiment: scale=paper
    smoke: Settings
    cpu: Callable[[str, str], Settings]  # of a data set and a model
    folder: str  # of results


class Study:
    """Every data set, model and seed that an experiment is asked for, at one scale.

    Args:
        names: settings of the experiment beyond those of all.
        fixed: as for `Request`.
    """

    def __init__(
        self,
        experiment: str,
        arguments: Sequence[str],
        scales: Scales,
        names: Collection[str],
        fixed: Mapping[str, str],
    ):
        common = ("scale", "dataset", "model", "seed", "out")
        self.request = request = Request(experiment, arguments, (*common, *names), fixed)
        request.one("scale", "")
        (self.scale,) = request.among("scale", ("smoke", "cpu", "paper"), "cpu")
        self.smoke, self._scales = self.scale == "smoke", scales
        self.datasets = request.several("dataset", "digits" if self.smoke else "fashion_mnist")
        self.models = request.several("model", "mlp" if self.smoke else "cnn")
        self.seeds = request.numbers("seed", 0)
        self.folder = request.folder(f"outputs/{scales.folder}_{self.scale}")
        self.name = f"{experiment} scale={self.scale}"  # of its runs, in their titles

    def reports(self) -> Iterator[tuple[str, str]]:
        """The data set and the model of every report."""
        return product(self.datasets, self.models)

    def settings(self, dataset: str, model: str) -> list[str]:
        """What a configuration differs in: by its scale and, before that, as asked for."""
        cpu = self._scales.cpu(dataset, model)
        of_scale = {"smoke": self._scales.smoke, "cpu": cpu, "paper": ()}[self.scale]
        every = (*of_scale, *self.request.overrides)
        return list({one.partition("=")[0]: one for one in every}.values())

    def config(self, dataset: str, model: str, seed: int, *overrides: str) -> Config:
        """The paper's setting, as large as the scale makes it."""
        which = (f"dataset={dataset}", f"model={model}", f"seed={seed}")
        settings = self.settings(dataset, model)
        return compose_config(self._scales.config, [*which, *settings, *overrides])

    def report(self, dataset: str, model: str) -> Report:
        """The report to which the results of a data set and a model are written."""
        return Report.of(self.request, self.folder, dataset=dataset, model=model)

    def said(self, model: str) -> tuple[str, str]:
        """The scale and the seeds of the study in words, for titles."""
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"
        return setting_of(self.scale, model, self.request.overrides), seeds

    def about(self, dataset: str, model: str, *more: str) -> str:
        """What a report of a data set and a model is about, for its title."""
        parts = [f"{dataset}, {model}", *self.said(model), *more]
        return ", ".join([*parts, *self.settings(dataset, model)])


def setting_of(scale: str, model: str, overrides: Collection[str]) -> str:
    """The scale, and what it is to the paper's setting where it is not the same."""
    if scale != "paper":
        return f"scale={scale} (smaller than the paper's setting)"
    names = {override.lstrip("+").partition("=")[0] for override in overrides}
    if any(f"{one}.".startswith(f"{name}.") for one in result_settings(Config()) for name in names):
        return f"scale={scale} (changed from the paper's setting)"
    return f"scale={scale}" + " (the paper's setting but for the network)" * (model != "cnn")
