"""The command line of the experiments: NAME=VALUE, commas for several, as in a Hydra multirun."""

import hashlib
import inspect
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from trip_jax.cli.command import command
from trip_jax.runs.interruption import EXIT_CODE, KEPT
from trip_jax.settings import choice, count
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.settings.figures import Drawing, drawing_of

CHOSEN_BY_GROUP = {
    f"{group}.{key}": f"{group}.{key} follows from its group: give {group}={{value}}."
    for group, key in (
        ("dataset", "name"),
        ("model", "kind"),
        ("distribution", "kind"),
        ("topology", "kind"),
        ("participation", "kind"),
        ("schedule", "kind"),
        ("channel", "kind"),
        ("trust", "kind"),
        ("privacy", "kind"),
        ("protocol", "kind"),
    )
}
"""Settings under which runs are named, which would be misnamed by a second choice."""

USUAL = ("scale", "dataset", "model", "seed")
"""What every command written into a report states, given or not."""

OF_FIGURES = ("figures", "figure_columns", "figure_titles")
"""Settings of every experiment that say how its figures are written."""

UNTOLD = ("out", "budget", *OF_FIGURES)
"""Settings that change no result, which neither commands in reports nor their names tell."""

UNITS_OF_TIME = {"s": 1, "m": 60, "h": 3600}


class Request:
    """What a command line asks an experiment for.

    Args:
        experiment: its name, with which reports begin.
        names: settings of its own; all others are overrides of the configuration.
        fixed: settings that it decides itself, and why they can't be given.

    Attributes:
        overrides: of the configuration of every run.
        began: when it was made, in seconds of `time.time`.

    Raises:
        InvalidSetting: an argument that can't be read, or that is not for the user to give.
    """

    def __init__(
        self,
        experiment: str,
        arguments: Sequence[str],
        names: Collection[str],
        fixed: Mapping[str, str] | None = None,
    ):
        self.experiment, self._names = experiment, (*names, *OF_FIGURES)
        self._given: dict[str, str] = {}
        self._defaults: dict[str, str] = {}  # of the settings of its own that were looked up
        self.overrides: tuple[str, ...] = ()
        self.began = time.time()
        for argument in arguments:
            name, equals, value = argument.lstrip("+").partition("=")
            if not equals or not value:
                raise InvalidSetting(f"Cannot read {argument!r}: a setting is written NAME=VALUE.")
            if name in self._names:
                self._given[name] = value
            elif name == "experiment":
                raise InvalidSetting("experiment is fixed here: give single settings instead.")
            elif fixed and name in fixed:
                raise InvalidSetting(fixed[name].format(value=value))
            elif "," in value and not value.startswith("["):
                raise InvalidSetting(f"{name} takes one value here, not {value!r}.")
            else:
                self.overrides += (argument,)

    def refuse_overrides(self) -> None:
        """Refuse settings of runs, for an experiment that configures none."""
        for override in self.overrides:
            name = override.lstrip("+").partition("=")[0]
            raise InvalidSetting(
                f"There is no setting {name} here: there are {', '.join(self._names)}."
            )

    def one(self, name: str, default: str) -> str:
        """A setting that takes a single value."""
        if default:
            self._defaults[name] = default
        value = self._given.get(name, default)
        if "," in value:
            raise InvalidSetting(f"{name} takes one value here, not {value!r}.")
        return value

    def several(self, name: str, *default: str) -> tuple[str, ...]:
        """The values of a setting, none twice."""
        if default:
            self._defaults[name] = ",".join(default)
        given = self._given.get(name)
        if given is None:
            return default
        values = tuple(dict.fromkeys(given.split(",")))
        if "" in values:
            raise InvalidSetting(f"{name}={given} has a comma too many: write {name}=A,B.")
        return values

    def among(self, name: str, choices: Sequence[str], *default: str) -> tuple[str, ...]:
        """Values that have to be one of the choices; all of them if there is no default."""
        values = self.several(name, *(default or choices))
        for value in values:
            choice(name, value, choices)
        return values

    def numbers(self, name: str, *default: int) -> tuple[int, ...]:
        """Values that have to be whole numbers of at least 0."""
        values = self.several(name, *map(str, default))
        for value in values:
            if not value.isdecimal():
                raise InvalidSetting(f"{name} must be a whole number, not {value!r}.")
        return tuple(dict.fromkeys(map(int, values)))

    def number(self, name: str, default: int, least: int = 0) -> int:
        """The whole number that a setting of the command gives."""
        self.one(name, "")
        (number,) = self.numbers(name, default)
        count(name, number, least)
        return number

    def reals(self, name: str, *default: float) -> tuple[float, ...]:
        """Values that have to be numbers of at least 0."""
        values = self.several(name, *map(str, default))
        for value in values:
            if not re.fullmatch(r"\d*\.?\d+(e-?\d+)?", value):
                raise InvalidSetting(f"{name} must be a number of at least 0, not {value!r}.")
        return tuple(dict.fromkeys(map(float, values)))

    def seconds(self, name: str, default: str) -> float | None:
        """A time such as 540s, 30m or 2h; None where it is neither given nor has a default."""
        if not (time := self.one(name, default)):
            return None
        found = re.fullmatch(r"(\d*\.?\d+)([smh])", time)
        if not found:
            raise InvalidSetting(f"{name}={time} is no time: write {name}=540s, 30m or 2h.")
        return float(found[1]) * UNITS_OF_TIME[found[2]]

    def drawing(self) -> Drawing:
        """How figures are written: as PNG and PDF unless `figures` says otherwise."""
        columns, titles = self._given.get("figure_columns"), self._given.get("figure_titles")
        choice("figure_titles", titles or "true", ("true", "false"))
        choice("figure_columns", columns or "null", ("null", "1", "2"))
        wide = int(columns) if columns in ("1", "2") else None
        return drawing_of(self._given.get("figures", "png,pdf"), wide, titles != "false")

    def folder(self, default: str) -> Path:
        """The folder in which the experiment writes its results."""
        return Path(self.one("out", default))

    def asks_for_one_report(self) -> bool:
        """Whether it names no more than one data set and one model."""
        return not any("," in self._given.get(name, "") for name in ("dataset", "model"))

    def command(self, **of: str) -> str:
        """The command line that asks for one report, but for the folder.

        Args:
            of: the data set and the model of the report, where several may be asked for.
        """
        usual = {name: self._defaults[name] for name in USUAL if name in self._defaults}
        said = [f"{name}={value}" for name, value in (usual | self._own(of)).items()]
        words = ["python", "-m", f"experiments.{self.experiment}", *said, *self._last_overrides()]
        return shlex.join(words)

    def report_name(self, **of: str) -> str:
        """How the names of a report's files begin: the experiment, its scale and, where more is
        asked for than the defaults, a hash of that; short, and another for another report."""
        own = self._own(of)
        scale = own.pop("scale", self._defaults.get("scale", ""))
        defaults = self._defaults.items()
        asked = [f"{name}={value}" for name, value in own.items() if (name, value) not in defaults]
        asked += self._last_overrides()
        short = hashlib.sha256(" ".join(asked).encode()).hexdigest()[:6] if asked else ""
        return "_".join(filter(None, (self.experiment, scale, short)))

    def _own(self, of: dict[str, str]) -> dict[str, str]:
        """The experiment's own settings as they are given, of one report, in a fixed order."""
        given = {name: value for name, value in self._given.items() if name not in UNTOLD} | of
        usual = {name: given.pop(name) for name in USUAL if name in given}
        return usual | dict(sorted(given.items()))

    def _last_overrides(self) -> list[str]:
        """The overrides in a fixed order; of a setting that is given twice, the last holds."""
        last = {one.lstrip("+").partition("=")[0]: one.lstrip("+") for one in self.overrides}
        return [last[name] for name in sorted(last)]


def run_as_command(experiment: Callable[[Sequence[str]], None]) -> None:
    """Run an experiment, or print its module's docstring for --help; exit code 2 and one sentence
    for what a user can mend."""

    def main(arguments: Sequence[str]) -> None:
        if {"-h", "--help"} & set(arguments):
            print(inspect.getdoc(sys.modules[experiment.__module__]))
            return
        experiment(arguments)

    try:
        code = command(main)(sys.argv[1:])
    except Interrupted:
        sys.stderr.write(f"{KEPT}\n")
        code = EXIT_CODE
    except KeyboardInterrupt:
        sys.stderr.write(f"{KEPT}\n")
        code = 130
    if code:
        sys.exit(code)
