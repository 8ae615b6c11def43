"""Hydra's options: which there are, and how every Python takes their help."""

import os
from argparse import Action, ArgumentError, ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trip_jax.settings import choice, require
from trip_jax.settings.errors import InvalidSetting

OPTIONS: dict[str, dict[str, Any]] = {
    "--help -h": {"action": "store_true"},
    "--hydra-help": {"action": "store_true"},
    "--version": {"action": "store_true"},
    "--cfg -c": {"choices": ("job", "hydra", "all")},
    "--resolve": {"action": "store_true"},
    "--package -p": {},
    "--run -r": {"action": "store_true"},
    "--multirun -m": {"action": "store_true"},
    "--shell-completion -sc": {"action": "store_true"},
    "--config-path -cp": {},
    "--config-name -cn": {},
    "--config-dir -cd": {},
    "--experimental-rerun": {},
    "--info -i": {
        "nargs": "?",
        "const": "all",
        "choices": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
    },
}
"""Hydra's options, as `trip-jax run --hydra-help` lists them, and what each takes."""


def refuse_no_option(arguments: Sequence[str]) -> None:
    """Refuse options that Hydra does not know, or that end in a traceback of Hydra.

    Raises:
        InvalidSetting: there is one.
    """
    parser = ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("overrides", nargs="*")
    for names, kind in OPTIONS.items():
        parser.add_argument(*names.split(), **kind)
    try:
        given, unknown = parser.parse_known_args(arguments)
    except ArgumentError as error:
        raise InvalidSetting(f"{error}; trip-jax run --help says more.") from error
    if unknown:
        raise InvalidSetting(f"There is no option {unknown[0]}: a setting is written NAME=VALUE.")
    require(
        not given.experimental_rerun,
        "--experimental-rerun unpickles a file, which may do anything: give the settings again.",
    )
    if given.shell_completion:
        asked = ("install", "uninstall", *["query"] * ("COMP_LINE" in os.environ))
        shells = [f"{what}={shell}" for what in asked for shell in ("bash", "fish", "zsh")]
        choice("--shell-completion", " ".join(given.overrides), shells)


_ADD_ARGUMENT = ArgumentParser.add_argument


def _add_argument(self: ArgumentParser, *names: Any, help: Any = None, **kind: Any) -> Action:
    """Add an option to the parser whose help may become text only when it is printed."""
    action = _ADD_ARGUMENT(self, *names, **kind)
    if help is not None:
        action.help = help
    return action


@contextmanager
def lazy_help() -> Iterator[None]:
    """Let Hydra build its parser of options under every Python.

    The help of Hydra's `--shell-completion` becomes text when it is printed. From Python 3.14 on,
    `add_argument` reads the help at once and refuses what is no text.
    """
    ArgumentParser.add_argument = _add_argument  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ArgumentParser.add_argument = _ADD_ARGUMENT  # type: ignore[method-assign]
