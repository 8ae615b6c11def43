"""The federations of 100 clients that experiments on a small world are asked for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from experiments.harness.command_line import CHOSEN_BY_GROUP
from experiments.harness.kept_runs import KeptRun
from experiments.harness.study import Scales, Settings, Study
from trip_jax.config import Config, Defence
from trip_jax.runs.prepare import describe
from trip_jax.settings.errors import InvalidSetting

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

CPU: Mapping[str, Settings] = {
    "cnn": ("dataset.train_size=6000", "training.rounds=10"),
    "mlp": ("dataset.train_size=12000", "training.rounds=25"),
}
"""scale=cpu, by model: some ten minutes (CNN) or one (MLP) for a run on two cores."""

SCALES = Scales(
    config="ws100",
    smoke=(
        *("n_clients=12", "dataset.train_size=480", "dataset.test_size=200"),
        *("training.rounds=3", "training.learning_rate=0.05"),
    ),
    cpu=lambda _, model: CPU.get(model, CPU["mlp"]),
    folder="large",
)


class SmallWorldStudy(Study):
    """Which honest federations an experiment is asked for.

    Args:
        names: settings of the experiment.
        fixed: beyond those of all, as for `Request`.
    """

    def __init__(
        self,
        experiment: str,
        arguments: Sequence[str],
        names: Collection[str] = (),
        fixed: dict[str, str] = UNJUDGED,
    ):
        super().__init__(experiment, arguments, SCALES, names, FIXED | fixed)

    def config(self, dataset: str, model: str, seed: int, *overrides: str) -> Config:
        config = super().config(dataset, model, seed, *overrides)
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
        return KeptRun(self.folder / "runs", replace(config, defence=defence), self.name)

    def title(self, config: Config, *more: str) -> str:
        """What was run; a run that is not the paper's is said to be so."""
        said = (describe(config), *self.said(config.model.kind), *more, *self.request.overrides)
        return "; ".join(said)
