"""How near every kept method is to the truth of every cell: data/rows.npz."""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Self
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Float32

from trip_jax.judge.cells import DATA, Cell, benchmark
from trip_jax.judge.work import Answer
from trip_jax.judge.yardsticks import JUDGED, judged
from trip_jax.learning.evaluation import UTILITIES
from trip_jax.runs.directory import whole
from trip_jax.settings.errors import InvalidSetting

ROWS = "rows.npz"

BY = ("accuracy", "loss")
"""The utilities of truths that methods are judged by."""

MATRIX, SCORES = LEVELS = ("matrix", "scores")
"""What is judged: phi, a row for each final model, or scores, its mean over models."""


def measured(phi: np.ndarray, values: Float[np.ndarray, "n n 3"]) -> Float32[np.ndarray, "U L Y"]:
    """A method's yardsticks in a cell, for each of `BY`, `LEVELS` and `JUDGED`.

    Args:
        phi: [n, n, 3], [n, n], or scores [n], which have no matrix.
    """
    found = np.full((len(BY), len(LEVELS), len(JUDGED)), np.nan, np.float32)
    for u, utility in enumerate(BY):
        k = UTILITIES.index(utility)
        of_utility, truth = phi[..., k] if phi.ndim == 3 else phi, values[..., k]
        if of_utility.ndim == 2:
            found[u, LEVELS.index(MATRIX)] = judged(of_utility, truth)
        scores = of_utility.mean(axis=0) if of_utility.ndim == 2 else of_utility
        found[u, LEVELS.index(SCORES)] = judged(scores[None], truth.mean(axis=0)[None])
    return found


@dataclass(frozen=True)
class Table:
    """Yardsticks and costs of methods in cells; NaN where a method was not judged."""

    benchmark: str  # the label of the cells' version
    methods: tuple[str, ...]
    cells: tuple[str, ...]
    values: Float32[np.ndarray, "M C U L Y"]
    spent: Float[np.ndarray, "M C 3"]  # evaluations, gradients, bytes of a run

    @classmethod
    def read(cls, path: Path) -> Self:
        """The table that an earlier call wrote to a file.

        Raises:
            InvalidSetting: it is damaged.
        """
        try:
            with np.load(path, allow_pickle=False) as arrays:
                methods, cells = (tuple(arrays[one].tolist()) for one in ("methods", "cells"))
                label, values, spent = (arrays[one] for one in ("benchmark", "values", "spent"))
                return cls(str(label), methods, cells, values, spent)
        except (KeyError, ValueError, EOFError, BadZipFile, zlib.error) as error:
            raise InvalidSetting(f"{path} is damaged ({error}): install trip-jax again.") from error

    def write(self, path: Path) -> None:
        """Write the table to a file, whole or not at all."""
        with whole(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **vars(self))

    @classmethod
    def empty(cls) -> Self:
        """A table of all cells without a method."""
        cells = tuple(one.name for one in benchmark().cells)
        shape = (0, len(cells))
        values = np.zeros((*shape, len(BY), len(LEVELS), len(JUDGED)), np.float32)
        return cls(benchmark().label, (), cells, values, np.zeros((*shape, 3)))

    def beside_others(self, others: Collection[str]) -> Self:
        """This table for all cells, NaN in `others` and in those that it lacks."""
        known = [one for one in self.cells if one not in others]
        cells = tuple(one.name for one in benchmark().cells)
        old = [self.cells.index(one) for one in known]
        new = [cells.index(one) for one in known]

        def wider(rows: np.ndarray) -> np.ndarray:
            found = np.full((len(rows), len(cells), *rows.shape[2:]), np.nan, rows.dtype)
            found[:, new] = rows[:, old]
            return found

        values, spent = wider(self.values), wider(self.spent)
        return replace(self, benchmark=benchmark().label, cells=cells, values=values, spent=spent)

    def having(self, method: str, cells: Sequence[Cell], said: Sequence[Answer]) -> Self:
        """This table with the yardsticks and costs of a method in some cells."""
        table = self
        if method not in self.methods:
            nothing = (
                np.full((1, *one.shape[1:]), np.nan, one.dtype) for one in (self.values, self.spent)
            )
            both = zip((self.values, self.spent), nothing, strict=True)
            values, spent = (np.concatenate(pair) for pair in both)
            table = replace(self, methods=(*self.methods, method), values=values, spent=spent)
        row, values, spent = table.methods.index(method), table.values.copy(), table.spent.copy()
        for cell, one in zip(cells, said, strict=True):
            place = table.cells.index(cell.name)
            values[row, place], spent[row, place] = measured(one.phi, cell.values), one.spent
        return replace(table, values=values, spent=spent)

    def has(self, method: str, cells: Sequence[Cell]) -> bool:
        """Whether a method was judged in all of some cells."""
        return method in self.methods and bool(np.isfinite(self.of(method, cells, SCORES)).all())

    def of(self, method: str, cells: Sequence[Cell], level: str) -> Float[np.ndarray, "C U Y"]:
        """A method's yardsticks in some cells."""
        places = [self.cells.index(one.name) for one in cells]
        return self.values[self.methods.index(method), places][:, :, LEVELS.index(level)]

    def judged(self, cells: Sequence[Cell]) -> list[str]:
        """The methods that were judged in all of some cells."""
        return [one for one in self.methods if self.has(one, cells)]

    def cost(self, method: str, cells: Sequence[Cell]) -> Float[np.ndarray, " 3"]:
        """The mean over cells of what a method takes of a run."""
        places = [self.cells.index(one.name) for one in cells]
        return self.spent[self.methods.index(method), places].mean(axis=0)


@cache
def kept_table() -> Table:
    """The table that comes with the package.

    Raises:
        InvalidSetting: it is damaged, or of other cells.
    """
    table = Table.read(DATA / ROWS)
    if table.benchmark != benchmark().label:
        raise InvalidSetting(
            f"{DATA / ROWS} is of other cells than {DATA}: install trip-jax again, or, in a "
            "checkout, run python -m experiments.leaderboard."
        )
    return table
