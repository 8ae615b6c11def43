"""Methods asked cell by cell; what they said is kept, so that interrupted work goes on."""

import hashlib
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from trip_jax import __version__
from trip_jax.judge.cells import Cell, benchmark
from trip_jax.judge.methods import Judged
from trip_jax.judge.spent import spent
from trip_jax.judge.trained import Trained
from trip_jax.runs.directory import whole
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.lock import locked
from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_files import refuse_links


@dataclass(frozen=True)
class Answer:
    """The contributions that a method computed for a cell, and what that cost."""

    phi: np.ndarray  # [n, n, 3], [n, n] or scores [n]
    spent: np.ndarray  # [3], see `Spent`


def ask(
    folder: Path,
    methods: Mapping[str, Judged],
    cells: Sequence[Cell],
    *,
    fresh: bool = False,
    known: Callable[[Cell, str], np.ndarray | None] = lambda cell, name: None,
    on_cell: Callable[[int, Cell], None] | None = None,
) -> dict[str, list[Answer]]:
    """The contributions by methods for cells, computed now or read from an earlier call.

    A cell's run is trained once for all methods that lack it.

    Args:
        folder: keeps what they say, of each method in a folder of the name that it is given here.
        fresh: ask again about all cells.
        known: answers that need not be asked for, by cell and method.
        on_cell: called with the number of each cell, and the cell, before it is asked about.

    Raises:
        InvalidSetting: a method says what is no contribution, or a cell's run is not that of its
            truth.
        Interrupted: a signal asked for an end.
    """
    found: dict[str, list[Answer]] = {name: [] for name in methods}
    with (
        _emptied(folder, methods),
        locked(folder),
        Interruption("this cell") as interruption,
    ):
        refuse_links(folder / name for name in methods)
        for k, cell in enumerate(cells):
            if on_cell:
                on_cell(k, cell)
            trained: Trained | None = None
            for name, method in methods.items():
                path, by = folder / name / f"{cell.name}.npz", _made_by(method, cell)
                said = None if fresh else _read(path, by)
                if said is None:
                    interruption.heed()
                    trained = trained or Trained.again(cell)
                    said = _asked(method, trained, cell, known(cell, name))
                    _write(path, said, by)
                found[name].append(said)
            interruption.heed()
    return found


def checked(phi: object, n: int, whose: str) -> np.ndarray:
    """Contributions as float64 [n, n, 3], [n, n] or [n].

    Raises:
        InvalidSetting: they are none.
    """
    try:
        array = np.asarray(phi, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"{whose} are no array of numbers ({error}): give phi [n, n] or scores [n]."
        ) from error
    shapes = ((n,), (n, n), (n, n, 3))
    require(
        array.shape in shapes,
        f"{whose} have the shape {list(array.shape)}: give scores [{n}], phi [{n}, {n}], with "
        f"client i's final model in row i, or phi [{n}, {n}, 3] by accuracy, loss and probability.",
    )
    require(
        bool(np.isfinite(array).all()),
        f"{whose} are not all finite: give a number for every client, 0 where nothing is known.",
    )
    return array


def slug(name: str) -> str:
    """A method's name as that of a folder."""
    return re.sub(r"[^\w.+]+", "-", name).strip("-.") or "method"


@contextmanager
def _emptied(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Remove folders that work has made and left empty."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        yield
    finally:
        for one in (*(folder / name for name in names), *made):
            with suppress(OSError):
                one.rmdir()


def _asked(method: Judged, trained: Trained, cell: Cell, known: np.ndarray | None) -> Answer:
    phi = method.phi(trained) if known is None else known
    phi = checked(phi, len(cell.values), f"Contributions of {cell.name} by {method.name}")
    cost = spent(method.costs, *trained.sizes)
    return Answer(phi, np.array(astuple(cost), np.float64))


def _made_by(method: Judged, cell: Cell) -> str:
    """What kept answers depend on, as a hash."""
    known = [method.name, method.made_by, __version__, benchmark().version, cell.sha256]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _read(path: Path, by: str) -> Answer | None:
    """The kept contributions of a cell; None if there are none, or they depend on other inputs."""
    refuse_links([path])
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["by"]) == by:
                return Answer(arrays["phi"], arrays["spent"])
    except (OSError, KeyError, ValueError, EOFError, BadZipFile, zlib.error):
        pass
    return None


def _write(path: Path, said: Answer, by: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with whole(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, allow_pickle=False, by=np.array(by), **vars(said))


class CellProgress:
    """Says now and then which cell is asked about, and how long the others will take."""

    SECONDS_A_LINE = 10.0

    def __init__(self, count: int, say: Callable[[str], None]):
        self._count, self._say = count, say
        self._began, self._said = time.monotonic(), -np.inf

    def __call__(self, k: int, cell: Cell) -> None:
        from trip_jax.simulation.progress import duration

        now = time.monotonic()
        if now < self._said + self.SECONDS_A_LINE:
            return
        self._said = now
        left = duration((now - self._began) / k * (self._count - k)) if k else ""
        self._say(f"cell {k + 1} of {self._count}: {cell.name}" + f", {left} left" * bool(left))
