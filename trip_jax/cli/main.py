"""The command `trip-jax`: which of its commands is meant, and completion in a shell."""

import importlib
import os
import re
import sys
from collections.abc import Sequence

from trip_jax import __version__
from trip_jax.cli.command import command
from trip_jax.settings import choice
from trip_jax.settings.errors import InvalidSetting

COMMANDS = {
    "run": "trip_jax.cli.run",
    "report": "trip_jax.report",
    "compare": "trip_jax.compare",
    "verify": "trip_jax.cli.verify",
    "judge": "trip_jax.cli.judge",
    "coordinate": "trip_jax.coordinate",
    "key": "trip_jax.cli.key",
    "rewards": "trip_jax.rewards.__main__",
    "settings": "trip_jax.cli.settings",
}
"""The module whose `main(arguments)` carries a command out."""

USAGE = """\
trip-jax computes who contributed what in decentralised federated learning.

  trip-jax run [SETTING=VALUE ...]     simulate a federation, write a directory
  trip-jax report DIR                  a page on which a run can be explored
  trip-jax compare DIR ...             runs side by side
  trip-jax verify DIR                  do its last rounds come out again?
  trip-jax judge METHOD                a method against exact Shapley values
  trip-jax coordinate TABLE --out DIR  contributions from a table of reports
  trip-jax key FILE                    a key for a client or the operator
  trip-jax rewards DIR                 a budget divided by the scores of a run
  trip-jax settings [GROUP]            every setting: meaning, values, default

Examples
  trip-jax run                         eight clients learn digits, ten seconds
  trip-jax run topology=star n_clients=12 training.rounds=20
  trip-jax run -m seed=0,1,2 distribution=sizes,noisy_labels
  trip-jax run +experiment=ws100 model=mlp resume=auto
  trip-jax settings topology

trip-jax COMMAND --help says more of a command, trip-jax --version which it is.
Completion of settings by TAB: eval "$(trip-jax run -sc install=bash)"
"""


@command
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 where a user can mend something."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if name == "--version":
        print(f"trip-jax {__version__}")
        return 0
    if name in ("-sc", "--shell-completion"):
        return _complete([name, *rest])
    if "=" in name:
        raise InvalidSetting(f"{name!r} is no command: write trip-jax run {name}.")
    choice("The command", name, tuple(COMMANDS))
    return importlib.import_module(COMMANDS[name]).main(rest) or 0


def _complete(arguments: list[str]) -> int:
    """Complete a line in a shell: settings by Hydra after `run`, else the names of commands."""
    line = os.environ.get("COMP_LINE", "")
    of_run = re.match(r"\s*\S+\s+run\s", line)
    if line and not of_run:
        if re.fullmatch(r"\s*\S+\s+\S*", line):
            print(" ".join(COMMANDS))
        return 0
    if of_run:
        os.environ["COMP_LINE"] = f"trip-jax {line[of_run.end() :]}"
    return importlib.import_module("trip_jax.cli.run").main(arguments) or 0
