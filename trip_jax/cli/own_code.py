"""A function of a user's own file as a choice on the command line: dataset=FILE.py:FUNCTION."""

from collections.abc import Iterable, Iterator

from trip_jax.settings.own_code import names_code

GROUP, CHOICE = "dataset", "file"
"""The group that takes such a choice, and the file of settings that it begins with."""


def with_own_code(arguments: Iterable[str]) -> Iterator[str]:
    """The arguments as Hydra takes them, which knows choices that are files of settings alone."""
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == GROUP and names_code(value):
            yield f"{GROUP}={CHOICE}"
            yield f"{GROUP}.name={value}"
        else:
            yield argument
