"""The command line of the experiments: NAME=VALUE, commas for several, as in a Hydra multirun."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trip_jax.config_errors import no_choice, one_line
from trip_jax.errors import InvalidSetting
from trip_jax.evaluation import UTILITIES
from trip_jax.run import CONF, USER_ERRORS

EXAMPLES_PER_CLIENT = {"cnn": 160, "mlp": 960}
"""scale=cpu: so many that the two re-executions of a cell take about ten minutes (CNN) or one
(MLP) on two idle cores."""

N_CLIENTS = 8

SCALES: Mapping[str, Mapping[str, str]] = {
    "smoke": {"dataset": "digits", "model": "mlp"},
    "cpu": {"dataset": "fashion_mnist", "model": "cnn"},
    "paper": {"dataset": "fashion_mnist", "model": "cnn"},
}
"""What is run where nothing else is asked for."""


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

    def overrides_of_scale(self, model: str) -> list[str]:
        """How much smaller than the paper's setting the scale makes a cell."""
        if self.scale == "cpu":
            return [f"dataset.train_size={N_CLIENTS * EXAMPLES_PER_CLIENT.get(model, 160)}"]
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
    given = {"scale": "cpu"} | {name: ",".join(values) for name, values in defaults.items()}
    overrides = []
    names = ("scale", "dataset", "model", "distribution", "topology", "seed", "normalization")
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not value:
            raise InvalidSetting(f"Cannot read {argument!r}: a setting is written NAME=VALUE.")
        if name in (*names, "utility", "samples", "out"):
            given[name] = value
            if len(defaults.get(name, ())) == 1 and "," in value:
                raise InvalidSetting(f"{name} takes one value here, not {value!r}.")
        elif name.lstrip("+") == "experiment":
            raise InvalidSetting("experiment is fixed here: give single settings instead.")
        elif name in ("contribution.utility", "contribution.normalization"):
            short = name.removeprefix("contribution.")
            raise InvalidSetting(f"All are measured; {short}={value} chooses what is reported.")
        elif "," in value and not value.startswith("["):
            raise InvalidSetting(f"{name} takes one value here, not {value!r}.")
        else:
            overrides.append(argument)
    scale = given["scale"]
    if scale not in SCALES:
        raise InvalidSetting(f"scale must be one of {', '.join(SCALES)}, not {scale!r}.")

    samples = given.get("samples")
    if samples is not None and not samples.isdecimal():
        raise InvalidSetting(f"samples must be a number of coalitions, not {samples!r}.")

    def several(name: str, default: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(given.get(name, default).split(",")))  # none twice

    def among(name: str, choices: Sequence[str]) -> tuple[str, ...]:
        values = several(name, ",".join(choices))
        for value in values:
            if value not in choices:
                raise InvalidSetting(f"{name} must be one of {', '.join(choices)}, not {value!r}.")
        return values

    return Request(
        scale=scale,
        datasets=several("dataset", SCALES[scale]["dataset"]),
        models=several("model", SCALES[scale]["model"]),
        distributions=several("distribution", "iid"),
        topologies=several("topology", "regular"),
        seeds=several("seed", "0"),
        normalizations=among("normalization", ("paper", "efficient")),
        utilities=among("utility", UTILITIES),
        samples=None if samples is None else int(samples),
        folder=Path(given.get("out", f"outputs/tables_{scale}")),
        overrides=tuple(overrides),
        variation=" ".join(
            argument
            for argument in sorted(arguments)
            if argument.partition("=")[0] not in ("scale", "dataset", "model", "seed", "out")
        ),
    )


def run_as_command(experiment: Callable[[Sequence[str]], None]) -> None:
    """Run an experiment; exit code 2 and one sentence for what a user can mend."""
    try:
        experiment(sys.argv[1:])
    except USER_ERRORS as error:
        sys.stderr.write(f"error: {one_line(error, CONF)}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what is finished is kept; the same command goes on.\n")
        sys.exit(130)
    except ValueError as error:
        if "Config group override must be" not in str(error):
            raise
        sys.stderr.write(f"error: {no_choice(sys.argv[1:], CONF)}\n")
        sys.exit(2)
