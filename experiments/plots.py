"""Figures of the tables: distances beside the paper's, and TRIP-Shapley against Shapley."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas

from experiments.cells import Cell


def draw_distances(frame: pandas.DataFrame, title: str, columns: Sequence[str], path: Path) -> None:
    pass


def draw_scatter(cells: Mapping[str, Cell], title: str, path: Path) -> None:
    pass
