"""A user's own method, named by its file: `mine.py:Method` or `mine.py:function`.

The file's code is run, as Python runs a script, because the user names it on the command line.
"""

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.judge.arrays import ARRAYS, arrays_of, costs, sees
from trip_jax.judge.methods import Judged, method_of, of_class
from trip_jax.judge.trained import Trained
from trip_jax.protocol.methods.method import SAID, Method
from trip_jax.settings import nearest, require
from trip_jax.settings.errors import InvalidSetting


def judged(text: str) -> Judged:
    """The method that a command line names.

    Args:
        text: a name, or a file and what it defines, as in `mine.py:Method`.

    Raises:
        InvalidSetting: there is none, or the file can't be run.
    """
    path, colon, name = text.rpartition(":")
    if not (colon and path.endswith(".py")):
        require(
            not text.endswith(".py"),
            f"{text} may define several: say which one is the method, as in {text}:NAME.",
        )
        return method_of(text)
    file = Path(path)
    require(file.is_file(), f"There is no file {path}: write FILE.py:NAME of your method.")
    found = getattr(_module(file), name, None)
    place = f"{path}:{name}"
    if found is None:
        raise InvalidSetting(f"{path} defines no {name!r}: name a function or a class of it.")
    label, made_by = f"{file.stem}:{name}", hashlib.sha256(file.read_bytes()).hexdigest()
    if isinstance(found, type):
        require(
            issubclass(found, Method) and all(hasattr(found, one) for one in SAID),
            f"{place} must be a function of arrays, or a class derived from Method that says its "
            f"{', '.join(SAID)}: docs/judge.md has an example of each.",
        )
        judge = of_class(label, found, made_by)
        return Judged(label, _guarded(place, judge.phi), judge.costs, judge.sees, made_by)
    require(
        callable(found),
        f"{place} must be a function or a class, not {type(found).__name__}: name another.",
    )
    return of_arrays(label, found, place, made_by)


def of_arrays(
    label: str, function: Callable[..., Any], place: str = "", made_by: str = ""
) -> Judged:
    """A function as a method: its parameters name the arrays that it is given.

    Args:
        place: what the user calls it, for messages.

    Raises:
        InvalidSetting: a parameter that names no array.
    """
    place = place or label
    names = []
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise InvalidSetting(
                f"{place} takes {one}, which names no array: name those that it needs, of "
                f"{', '.join(ARRAYS)}."
            )
        if name in ARRAYS:
            names.append(name)
        elif one.default is one.empty:
            close = nearest(name, ARRAYS)
            meant = f"did you mean {close[0]}?" if close else "give the parameter a default."
            raise InvalidSetting(
                f"{place} asks for {name!r}, but there are {', '.join(ARRAYS)}: {meant}"
            )

    def phi(one: Trained) -> np.ndarray:
        return np.asarray(function(**arrays_of(one, names)))

    return Judged(label, _guarded(place, phi), costs(names), sees(names), made_by)


def _module(file: Path) -> Any:
    """The module that a file defines, which may import files beside it."""
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(file.parent.resolve()))
    before = sys.modules.get(file.stem)
    sys.modules[file.stem] = module  # where dataclasses look their annotations up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InvalidSetting(f"{file} can't be run: {_where(error)}.") from error
    finally:
        sys.path.remove(str(file.parent.resolve()))
        if before is not None:
            sys.modules[file.stem] = before
    return module


def _guarded(place: str, phi: Callable[[Trained], np.ndarray]) -> Callable[[Trained], np.ndarray]:
    """The same function of a run, any error of which becomes an InvalidSetting."""

    def guarded(one: Trained) -> np.ndarray:
        try:
            return phi(one)
        except InvalidSetting:
            raise
        except Exception as error:
            raise InvalidSetting(f"{place} fails: {_where(error)}.") from error

    return guarded


def _where(error: BaseException) -> str:
    """An error with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        place = f" in line {error.lineno}"
    else:
        place = (
            f" in line {frames[-1].lineno} of {Path(frames[-1].filename).name}" if frames else ""
        )
    said = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}{place}" + (f" ({said})" if said else "")
