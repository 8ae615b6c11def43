"""Functions of a user's own Python files, named as FILE.py:FUNCTION.

Such a file is run, which only the user may ask for: on the command line, or in Python. What reads
settings from the files of a run refuses it (`refuse_own_code`).
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trip_node.settings import nearest, require
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.text_files import require_file

MARK = ".py:"


def names_code(value: Any) -> bool:
    """Whether a setting names a function of a file, as FILE.py:FUNCTION."""
    return isinstance(value, str) and MARK in value


def own_file(value: str) -> str | None:
    """The file of FILE.py:FUNCTION; None for any other text."""
    return f"{value.rpartition(MARK)[0]}.py" if names_code(value) else None


def short_name(value: str) -> str:
    """FILE.py:FUNCTION without the folders before the file; any other text as it is."""
    file, mark, function = value.rpartition(MARK)
    return f"{Path(file).name}{mark}{function}" if mark else value


def function_of(setting: str, value: str) -> Callable[..., Any]:
    """The function that a setting names as FILE.py:FUNCTION; the file is run once a process.

    Raises:
        InvalidSetting: there is no such file or function, or the file fails.
    """
    where, path, name = f"{setting}={value}", Path(own_file(value) or ""), value.rpartition(":")[2]
    require_file(where, path)
    require(path.is_file(), f"{where}: there is no file {path}.")
    functions = _run(path.resolve(), where)
    close = nearest(name, [one for one, it in functions.items() if callable(it)])
    meant = f": did you mean {' or '.join(close)}?" if close else "."
    require(name in functions, f"{where}: {path} has no function {name!r}{meant}")
    require(callable(functions[name]), f"{where} must name a function, and {name} is none.")
    found: Callable[..., Any] = functions[name]
    return found


def refuse_own_code(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse to run a user's own file because a run's directory names it.

    Args:
        settings: the values of settings by name.
    """
    for name, value in settings.items():
        require(
            not names_code(value),
            f"{folder} says {name}={value}, and a file is run only where you name it yourself: "
            "repeat the run by its command, and compare the two.",
        )


_NAMES: dict[Path, Mapping[str, Any]] = {}
"""What files define that were run in this process."""


def _run(path: Path, where: str) -> Mapping[str, Any]:
    """The names that a Python file defines, by running it once a process."""
    if path in _NAMES:
        return _NAMES[path]
    name = f"{path.stem}_of_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        line = error.lineno if isinstance(error, SyntaxError) else None
        at = f" in line {line}" if line else ""
        raise InvalidSetting(
            f"{where}: {path.name} fails{at} ({type(error).__name__}: {error}): mend it."
        ) from error
    _NAMES[path] = vars(module)
    return _NAMES[path]
