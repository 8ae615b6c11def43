"""The arrays of cells as files, for methods that are computed elsewhere."""

from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from trip_jax.judge.arrays import ARRAYS, MODELS, arrays_of
from trip_jax.judge.cells import Cell
from trip_jax.judge.trained import Trained
from trip_jax.runs.directory import whole
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.lock import locked
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_files import refuse_links


def export(
    folder: Path,
    cells: Sequence[Cell],
    *,
    models: bool = False,
    on_cell: Callable[[int, Cell], None] | None = None,
) -> list[Path]:
    """Write an .npz file of each cell with the arrays in `ARRAYS`; files that are whole stay.

    Args:
        models: models, too, which only a party may have that sees all of them.

    Raises:
        InvalidSetting: a file of such a name holds something else, or a cell's run is not that of
            its truth.
        Interrupted: a signal asked for an end.
    """
    names = [name for name in ARRAYS if models or name not in MODELS]
    paths = [folder / f"{one.name}.npz" for one in cells]
    with locked(folder), Interruption("this cell") as interruption:
        refuse_links(paths)
        for k, (cell, path) in enumerate(zip(cells, paths, strict=True)):
            if on_cell:
                on_cell(k, cell)
            if path.exists():
                _require_own(path, names)
                continue
            arrays = arrays_of(Trained.again(cell), names)
            with whole(path) as unfinished, unfinished.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)
            interruption.heed()
    return paths


def _require_own(path: Path, names: Sequence[str]) -> None:
    """Refuse a file that does not hold these arrays."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = set(arrays.files)
    except (OSError, ValueError, EOFError, BadZipFile, AttributeError, TypeError) as error:
        raise InvalidSetting(f"{path} is damaged or no export: move it away.") from error
    if not set(names) <= found:
        raise InvalidSetting(
            f"{path} holds {', '.join(sorted(found))}, and not all that is asked for: move it "
            "away, or choose another --export."
        )
