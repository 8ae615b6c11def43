"""What the experiments with 100 clients share: how a command line asks for their runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
import pandas

from experiments.command_line import (
    CHOSEN_BY_GROUP,
    Arguments,
    beside,
    report_stem,
    setting_of,
)
from experiments.kept import KeptRun, compose_config
from trip_jax.config import Config, Defence
from trip_jax.errors import InvalidSetting
from trip_jax.runs.prepare import describe

COMMON = ("scale", "dataset", "model", "seed", "out")
"""Settings of all of them, beside those of the configuration."""

FIXED = CHOSEN_BY_GROUP | {
    f"contribution.{name}": f"The experiment compares these itself: leave out {name}={{value}}."
    for name in ("utility", "normalization", "semivalue")
}
"""What none of them lets the user choose."""

UNJUDGED = {
    f"defence.{name}": f"Nobody defends here: leave out defence.{name}={{value}}."
    for name in ("v_threshold", "penalty", "distance", "thresholding")
}
"""Of those without lies."""

SMOKE: tuple[str, ...] = ("n_clients=12", "dataset.train_size=480", "dataset.test_size=200")
SMOKE += ("training.rounds=3", "training.learning_rate=0.05")
CPU: Mapping[str, tuple[str, ...]] = {
    "cnn": ("dataset.train_size=6000", "training.rounds=10"),
    "mlp": ("dataset.train_size=12000", "training.rounds=25"),
}
"""scale=cpu, by model: some ten minutes (CNN) or one (MLP) for a run on two cores."""


@dataclass(frozen=True)
class LargeRequest:
    """Which runs an experiment is asked for."""

    experiment: str
    scale: str
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    folder: Path
    overrides: tuple[str, ...]
    variation: str

    @classmethod
    def of(cls, experiment: str, given: Arguments) -> "LargeRequest":
        """Read what all of these experiments are asked for."""
        scale = given.scale()
        smoke = scale == "smoke"
        return cls(
            experiment=experiment,
            scale=scale,
            datasets=given.several("dataset", "digits" if smoke else "fashion_mnist"),
            models=given.several("model", "mlp" if smoke else "cnn"),
            seeds=given.numbers("seed", 0),
            folder=Path(given.one("out", f"outputs/large_{scale}")),
            overrides=given.overrides,
            variation=given.variation(),
        )

    def config(self, dataset: str, model: str, seed: int, *overrides: str) -> Config:
        """The paper's small world, as large as the scale makes it."""
        smaller = {"smoke": SMOKE, "cpu": CPU.get(model, CPU["mlp"]), "paper": ()}[self.scale]
        which = (f"dataset={dataset}", f"model={model}", f"seed={seed}")
        config = compose_config("ws100", [*which, *smaller, *self.overrides, *overrides])
        if config.adversary.kind != "none" or config.defence.c1 or config.defence.c2:
            raise InvalidSetting(
                "Federations are honest and undefended here: leave out adversary.kind, defence.c1 "
                "and defence.c2 (experiments.dishonest has lies and defences of its own)."
            )
        return config

    def run(self, dataset: str, model: str, seed: int, *overrides: str) -> KeptRun:
        """Its kept run: the same under any thresholds of C2, by which no report is judged in it."""
        config = self.config(dataset, model, seed, *overrides)
        defence = Defence(v_threshold=config.defence.v_threshold)
        name = f"{self.experiment} scale={self.scale}"
        return KeptRun(self.folder / "runs", replace(config, defence=defence), name)

    def title(self, config: Config, *more: str) -> str:
        """What was run; a run that is not the paper's is said to be so."""
        scale = setting_of(self.scale, config.model.kind, self.overrides)
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"
        return "; ".join([describe(config), scale, seeds, *more, *self.overrides])

    def stem(self, dataset: str, model: str) -> Path:
        """Where the report goes, but for the files' endings."""
        return report_stem(self.folder, self.experiment, self.scale, dataset, model, self.variation)


def write_report(stem: Path, frame: pandas.DataFrame, text: str) -> None:
    """The rows as CSV and the report as Markdown, which is printed as well."""
    frame.to_csv(beside(stem, ".csv"), index=False, float_format="%.6g")
    beside(stem, ".md").write_text(text)
    print(f"{text}\nreport in {stem.parent}")


def draw_report(stem: Path, draw: Callable[[Path], None]) -> None:
    """A figure as PNG and PDF, with fonts of the kind that publishers take (TrueType)."""
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for ending in (".png", ".pdf"):
            draw(beside(stem, ending))
