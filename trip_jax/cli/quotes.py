"""Names of files and directories as a shell gives them, quoted where Hydra's grammar needs it.

Hydra reads letters of the Latin alphabet, digits and a few signs. A name with others, such as an
umlaut, an equals sign or a comma, it takes in quotes.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from trip_jax.cli.allowed import allowed
from trip_jax.config import Config
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_code import names_code

OF_HYDRA = re.compile(r"hydra\.[\w.]*dir")
FORMATS = "figures"
"""A list of choices: commas alone make one, in a sweep as well."""

CHOSEN = ("kind", "name")  # by their group
ITEM = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,]*?)\s*(?:,|$)""")
INTEGER = re.compile(r"0|-?[1-9][0-9]*")
HOME = re.compile(r"~\w*(/|$)")
QUOTES = "'", '"'


def quoted(argument: str, sweep: bool = False) -> str:
    """The argument, with a text of any letters and signs taken as it is.

    Args:
        sweep: commas separate the values of a sweep.

    Raises:
        InvalidSetting: a name begins with ~, which the shell has left as it is.
    """
    given, equals, value = argument.partition("=")
    name = given.lstrip("+")
    if not equals or not value.strip():
        return argument
    if name in texts() or OF_HYDRA.fullmatch(name) or names_code(value):
        _refuse_home(name, value)
        if not sweep or OF_HYDRA.fullmatch(name):
            return f"{given}={_quoted(value)}"
        several = value if _read(value) is not False else ",".join(map(_quoted, _items(value)))
        return f"{given}={several}"
    if name == FORMATS:
        return f"{given}=[{value.strip('[]')}]"
    if name in lists() and value.startswith("[") and value.endswith("]"):
        items = list(_items(value[1:-1]))
        for item in items:
            _refuse_home(name, item)
        quotes = (item if INTEGER.fullmatch(item) else _quoted(item) for item in items)
        return f"{given}=[{','.join(quotes)}]"
    return argument


@cache
def texts() -> frozenset[str]:
    """Settings that are a text of the user's own, such as a path, and none of several choices."""
    return frozenset(
        name
        for name, hint in _settings(Config)
        if set(_kinds(hint)) - {NoneType} == {str}
        and name.rpartition(".")[2] not in CHOSEN
        and "one of" not in allowed(name)
    )


@cache
def lists() -> frozenset[str]:
    """Settings that are lists of such texts."""
    of_texts = {tuple[str, ...], tuple[int | str, ...]}
    found = (name for name, hint in _settings(Config) if of_texts & set(_kinds(hint)))
    return frozenset(found) - {FORMATS}


def _settings(section: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted name and type of every setting."""
    hints = get_type_hints(section)
    for one in fields(section):
        if is_dataclass(hint := hints[one.name]):
            yield from _settings(hint, f"{prefix}{one.name}.")  # type: ignore[arg-type]
        else:
            yield prefix + one.name, hint


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _items(listed: str) -> Iterator[str]:
    """What stands between the brackets of a list; a file whose name has commas is one item."""
    names = [match[1] for match in ITEM.finditer(listed) if match[0]]
    whole = len(names) > 1 and Path(listed).is_file() and not all(map(_is_file, names))
    yield from [listed] if whole else names


def _is_file(name: str) -> bool:
    return Path(name).is_file()


def _quoted(value: str) -> str:
    """The value, in quotes unless Hydra reads it as this very text, or as null."""
    read = _read(value)
    in_quotes = isinstance(read, str) and value.lstrip().startswith(QUOTES)
    if read is None or in_quotes or read == value:
        return value
    if isinstance(read, str) and "\\" in value:  # with Hydra's escapes
        return value
    text = value if re.search(r"\$\{.*\}", value) else value.replace("${", r"\${")
    escaped = re.sub(
        r"(\\*)('|$)", lambda found: 2 * found[1] + "\\" * bool(found[2]) + found[2], text
    )
    return f"'{escaped}'"


def _read(value: str) -> Any:
    """What Hydra reads; False where it can't."""
    try:
        return OverridesParser.create().parse_override(f"name={value}").value()
    except HydraException:
        return False


def _refuse_home(name: str, value: str) -> None:
    if HOME.match(value) and not Path(value).exists():
        raise InvalidSetting(
            f"{name}={value}: the shell leaves ~ as it is here; write $HOME, or the whole path."
        )
