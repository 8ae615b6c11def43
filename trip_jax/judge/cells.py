"""The standard cells: federations whose Shapley values by re-execution come with the package.

Of each cell data/truths.npz holds the Shapley values and the utilities of its 2 n + 2 coalitions of
at most one client and of all but one; data/cells.json holds its settings, the command that made it
and the hash of its numbers. Where coalitions were drawn, the values have standard errors, and the
coalitions kept are nobody and everyone.

Some cells exist once more for each of `LIES`, with a quarter of the clients lying. These lies
change no model that is mixed, so the truth is the same.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from flax.traverse_util import unflatten_dict
from jaxtyping import Bool, Float

from trip_jax.config import Adversary, Config
from trip_jax.runs.schema import config_of_values
from trip_jax.settings import choice, require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley.borders import border_coalitions

DATA = Path(__file__).parent / "data"
CELLS, TRUTHS = "cells.json", "truths.npz"

BORDERS = 1
"""Kept are the utilities of coalitions of at most so many clients, and of all but so many."""

NUMBERS = "values", "utilities", "standard_error"
"""The arrays of a truth; the last where coalitions were drawn."""

SEEDS: Mapping[str, tuple[int, ...]] = {
    "development": (0, 1),
    "judging": (10, 11, 12, 13, 14),
}
"""The seeds on which methods may be tuned, and those that judge them."""


LIES: Mapping[str, Adversary] = {
    kind: Adversary(kind, fraction=0.25) for kind in ("d1", "d2", "d3")
}
"""What clients may lie about: models before training (D1), reports (D2) and predictions (D3)."""


@dataclass(frozen=True)
class Cell:
    """A federation with its Shapley values, found by executing coalitions of clients again.

    Attributes:
        name: tells it apart, as in `digits-non_iid-star-10`.
        settings: those that differ from the defaults of `Config`, by name.
        command: the command line that executed its coalitions.
        sha256: of its numbers, see `numbers_hash`.
        varied: what it changes of the settings that most cells share, as in `local_epochs_3`, or
            one of `LIES`.
        borders: see `BORDERS`; 0 where coalitions were drawn.
        truth: the name of the cell whose truth this cell shares; empty if it has its own.
    """

    name: str
    dataset: str
    distribution: str
    topology: str
    seed: int
    settings: Mapping[str, Any]
    command: str
    sha256: str
    varied: str = ""
    borders: int = BORDERS
    truth: str = ""

    @property
    def config(self) -> Config:
        """The configuration of the honest run, on one device."""
        return replace(config_of_values(unflatten_dict(self.settings, sep=".")), devices=1)

    @property
    def adversary(self) -> Adversary:
        """The settings that say which clients of the cell lie, and how."""
        return LIES.get(self.varied, Adversary())

    def told_with(self, lie: str) -> "Cell":
        """This cell with a quarter of its clients telling a lie."""
        start = f"{self.dataset}-"
        name = f"{start}{lie}-{self.name.removeprefix(start)}"
        return replace(self, name=name, varied=lie, truth=self.name)

    @cached_property
    def values(self) -> Float[np.ndarray, "n n 3"]:
        """The contribution of client j to client i's final model, by each utility."""
        return self._numbers["values"]

    @cached_property
    def utilities(self) -> Float[np.ndarray, "K n 3"]:
        """The utilities of all clients' final models where only one of K coalitions trained."""
        return self._numbers["utilities"]

    @property
    def standard_error(self) -> Float[np.ndarray, "n n 3"] | None:
        """The standard errors of `values`; None where all coalitions were executed."""
        return self._numbers.get("standard_error")

    @property
    def inside(self) -> Bool[np.ndarray, "K n"]:
        """Which of the n clients belong to each of the K coalitions of `utilities`."""
        return border_coalitions(len(self.values), self.borders)

    @property
    def everyone(self) -> Float[np.ndarray, "n 3"]:
        """The utilities of all final models where everyone trained: those of the run."""
        return self.utilities[self.inside.all(axis=1)][0]

    @cached_property
    def _numbers(self) -> dict[str, np.ndarray]:
        path = DATA / TRUTHS
        arrays, keys = _arrays(path), {one: f"{self.truth or self.name}.{one}" for one in NUMBERS}
        found = {one: arrays[key].astype(float) for one, key in keys.items() if key in arrays}
        require(
            {"values", "utilities"} <= set(found),
            f"{path} lacks the truth of {self.name}: install trip-jax again.",
        )
        require(
            numbers_hash(**found) == self.sha256,
            f"The truth of {self.name} in {path} is not what {CELLS} says: install trip-jax again.",
        )
        return found


@cache
def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by their names.

    Raises:
        InvalidSetting: it is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise InvalidSetting(f"{path} is damaged ({error}): install trip-jax again.") from error


def numbers_hash(
    values: np.ndarray, utilities: np.ndarray, standard_error: np.ndarray | None = None
) -> str:
    """SHA-256 of a cell's truth as float64."""
    digest = hashlib.sha256()
    for array in (values, utilities, *([] if standard_error is None else [standard_error])):
        digest.update(np.ascontiguousarray(array, "<f8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Benchmark:
    """All cells that come with the package.

    Attributes:
        version: rises when cells are added or changed.
        packages: the versions of packages with which every cell's run was trained again and had the
            accuracies of its truth.
    """

    version: str
    packages: Mapping[str, str]
    cells: Sequence[Cell]

    @property
    def sha256(self) -> str:
        """The SHA-256 of the names and hashes of all cells, which identifies the benchmark."""
        lines = "".join(f"{cell.name} {cell.sha256}\n" for cell in self.cells)
        return hashlib.sha256(lines.encode()).hexdigest()

    @property
    def label(self) -> str:
        """The version with the first digits of the hash, as it is cited."""
        return f"{self.version}+{self.sha256[:8]}"


@cache
def benchmark() -> Benchmark:
    """The cells that come with the package."""
    saved = json.loads((DATA / CELLS).read_text(encoding="utf-8"))
    common = saved["settings"]
    cells = [Cell(**one | {"settings": common | one["settings"]}) for one in saved["cells"]]
    with_liars = [one.told_with(lie) for lie in LIES for one in cells if _has_liars(one)]
    return Benchmark(saved["version"], saved["packages"], cells + with_liars)


@dataclass(frozen=True)
class Track:
    """A named set of cells, on which methods are judged together.

    Attributes:
        about: the cells of the track in words.
        has: whether a cell is one of them.
    """

    about: str
    has: Callable[[Cell], bool]


def _digits(cell: Cell) -> bool:
    return cell.dataset == "digits" and not cell.varied


def _has_liars(cell: Cell) -> bool:
    """Whether a cell has a second form for each lie."""
    usual = cell.distribution in ("sizes", "noisy_labels", "non_iid")
    return _digits(cell) and usual and cell.topology in ("regular", "star")


CNN, HUNDRED = "cnn", "n_clients_100"

TRACKS: Mapping[str, Track] = {
    "small": Track("digits, five distributions on six graphs", _digits),
    "non_iid": Track(
        "digits, clients that own classes, on six graphs",
        lambda cell: _digits(cell) and cell.distribution == "non_iid",
    ),
    "hubs": Track(
        "digits, five distributions on the star",
        lambda cell: _digits(cell) and cell.topology == "star",
    ),
    "medium": Track(
        "Fashion-MNIST, five distributions on six graphs",
        lambda cell: cell.dataset == "fashion_mnist" and not cell.varied,
    ),
    "cnn": Track(
        "digits with a CNN, three distributions on two graphs",
        lambda cell: cell.varied == CNN,
    ),
    "settings": Track(
        "digits with other settings of learning, model, data and weights, on two graphs",
        lambda cell: cell.varied not in ("", CNN, HUNDRED, *LIES),
    ),
    "hundred": Track(
        "Fashion-MNIST, a hundred clients that own classes; an estimated truth",
        lambda cell: cell.varied == HUNDRED,
    ),
    "liars": Track(
        "digits, a quarter of the clients lies in one of three ways, on two graphs",
        lambda cell: cell.varied in LIES,
    ),
}


def cells_of(track: str, seeds: str) -> list[Cell]:
    """The cells of a track with these seeds, if there are any."""
    known = benchmark().cells
    return [one for one in known if TRACKS[track].has(one) and one.seed in SEEDS[seeds]]


def chosen(track: str, seeds: str) -> list[Cell]:
    """The cells that a command line asks for.

    Raises:
        InvalidSetting: there are no such seeds, no such track, or no such cell.
    """
    choice("--track", track, tuple(TRACKS))
    choice("--seeds", seeds, tuple(SEEDS))
    found = cells_of(track, seeds)
    others = " or ".join(one for one in SEEDS if cells_of(track, one))
    elsewhere = " and tune on --track small" if seeds == "development" else ""
    require(
        bool(found),
        f"--track {track} has no cell of --seeds {seeds}: choose --seeds {others}{elsewhere}.",
    )
    return found
