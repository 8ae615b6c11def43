"""The command `trip-node`: which of its commands is meant."""

import importlib
import sys
from collections.abc import Sequence

from trip_node import __version__
from trip_node.cli.command import command
from trip_node.settings import choice

COMMANDS = {
    "coordinate": "trip_node.cli.coordinate",
    "key": "trip_node.cli.key",
    "rewards": "trip_node.cli.rewards",
}
"""The module whose `main(arguments, program)` carries a command out."""

USAGE = """\
trip-node computes who contributed what in decentralised federated learning.

  trip-node coordinate TABLE --out DIR   contributions from a table of reports
  trip-node coordinate --listen HOST:PORT --state DIR --keys FILE
                                         the same as a service for signed reports
  trip-node coordinate --predictions FOLDER --labels FILE --out DIR
                                         contributions from what models say of a test set
  trip-node coordinate --listen HOST:PORT --state DIR --keys FILE --predictions --labels FILE
                                         the same as a service
  trip-node key FILE                     a key for a client or the operator
  trip-node rewards DIR                  a budget divided by the scores in DIR

trip-node COMMAND --help says more of a command, trip-node --version which it is.
"""


@command
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code, 2 where a user can mend something."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if name == "--version":
        print(f"trip-node {__version__}")
        return 0
    choice("The command", name, tuple(COMMANDS))
    return importlib.import_module(COMMANDS[name]).main(rest, "trip-node") or 0
