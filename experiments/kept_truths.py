"""Truths of standard cells, packed for `trip-jax judge`.

    python -m experiments.kept_truths from=FOLDER[,FOLDER] [version=1] [beside=true]
        [corrected=predictions]

FOLDER is the `out` of experiments.methods, whose cells have truths of all coalitions, or of
some that were drawn; `corrected` is then what that command had. Written are
trip_jax/judge/data/cells.json and truths.npz, by the versions of packages that are installed;
experiments.leaderboard trains every run again. With beside=true, cells that are packed already
stay, and so does what rows.npz says of them.
"""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import KeptRun, read
from trip_jax import Config
from trip_jax.judge.cells import (
    BORDERS,
    CELLS,
    DATA,
    NUMBERS,
    TRUTHS,
    Cell,
    benchmark,
    numbers_hash,
)
from trip_jax.judge.table import ROWS, kept_table
from trip_jax.runs.directory import whole
from trip_jax.runs.provenance import result_settings, versions
from trip_jax.runs.schema import config_of_values
from trip_jax.settings import require
from trip_jax.shapley.borders import border_coalitions

CHOSEN = (
    *("dataset.name", "model.kind", "distribution.kind", "seed"),
    *("topology.kind", "topology.directed", "topology.redraw_every"),
)
"""Settings that the command names by their group."""

USUAL: dict[str, Any] = {"model.kind": "mlp", "training.learning_rate": 0.05}
"""What most cells share, beside defaults; what is unusual is in a cell's name."""

SIZE = "dataset.train_size"
"""Follows from the data set and the number of clients."""


def kept_truths(arguments: Sequence[str]) -> None:
    """Pack the truths of all cells in some folders."""
    request = Request("kept_truths", arguments, ("from", "version", "beside", "corrected"))
    request.refuse_overrides()
    folders = [Path(one) for one in request.several("from", "outputs/tables_cpu")]
    paths = sorted(path for one in folders for path in (one / "cells").glob("*/decentralised.npz"))
    require(bool(paths), f"from={folders[0]} holds no cell with a truth.")
    corrected = request.one("corrected", "")
    cells = [_cell(path, corrected) for path in paths]
    stays = request.among("beside", ("true", "false"), "false") == ("true",)
    table = kept_table() if stays else None
    new = {cell.name for cell, _ in cells}
    if stays:
        own = [one for one in benchmark().cells if not one.truth]
        cells += [_packed(one) for one in own if one.name not in new]
    _write(sorted(cells, key=_order), request.one("version", "1"))
    if table is not None:
        benchmark.cache_clear()
        told = {one.name for one in benchmark().cells if one.truth in new}
        table.beside_others(new | told).write(DATA / ROWS)
    print(f"{len(cells)} cells in {DATA}")


Kept = tuple[Cell, dict[str, np.ndarray]]


def _order(kept: Kept) -> tuple[Any, ...]:
    cell = kept[0]
    return cell.dataset, cell.varied, cell.seed, cell.distribution, cell.topology


def _packed(cell: Cell) -> Kept:
    """A cell that the package has, and its numbers."""
    numbers = {one: getattr(cell, one) for one in NUMBERS}
    return cell, {one: values for one, values in numbers.items() if values is not None}


def _cell(path: Path, corrected: str) -> Kept:
    """A cell of the experiments and its numbers."""
    settings = json.loads((path.parent / "settings.json").read_text())
    config = config_of_values(unflatten_dict(settings, sep="."))
    truth = read(path)
    inside = truth["inside"]
    n_drawn, n = inside.shape
    beyond: dict[str, Any] = {}
    if n_drawn < 2**n:
        beyond = {"samples": n_drawn} | ({"corrected": corrected} if corrected else {})
    borders = 0 if beyond else BORDERS
    rows = {tuple(row): k for k, row in enumerate(inside.tolist())}
    few = border_coalitions(n, borders)
    numbers = {
        "values": truth["values"],
        "utilities": truth["utilities"][[rows[tuple(row)] for row in few.tolist()]],
    }
    numbers |= {"standard_error": truth["standard_error"]} if beyond else {}
    require(_is_single(numbers["utilities"]), f"{path} holds more than float32.")
    topology = config.topology.kind
    topology = "directed" if topology == "regular" and config.topology.directed else topology
    topology = "time_varying" if config.topology.redraw_every else topology
    defaults = _as_json(result_settings(Config().calibrated()))
    now = _as_json(result_settings(config))
    differing = {k: v for k, v in now.items() if v != defaults[k]}
    usual = defaults | USUAL
    varied = _varied({k: v for k, v in now.items() if v != usual[k]})
    dataset, distribution = config.dataset.name, config.distribution.kind
    parts = (dataset, varied, distribution, topology, str(config.seed))
    name = "-".join(part for part in parts if part)
    groups: dict[str, Any] = {"dataset": dataset, "model": config.model.kind}
    groups |= {"distribution": distribution, "topology": topology, "seed": config.seed}
    others = {k: v for k, v in differing.items() if k not in CHOSEN}
    others |= {k: now[k] for k in USUAL if k not in CHOSEN}
    given = {k: _word(v) for k, v in (groups | others | beyond | {"devices": 1}).items()}
    command = " ".join(["python -m experiments.methods", *(f"{k}={v}" for k, v in given.items())])
    which = (name, dataset, distribution, topology, config.seed)
    cell = Cell(*which, differing, command, numbers_hash(**numbers), varied, borders)
    require(
        not beyond or KeptRun(path.parents[1], cell.config, "", **beyond).folder == path.parent,
        f"{path} was made by another command: give corrected= as that had it.",
    )
    return cell, numbers


def _varied(unusual: Mapping[str, Any]) -> str:
    """What is unusual in a cell's settings, as a part of its name; a model by its kind alone."""
    model = unusual.get("model.kind")
    parts = [] if model is None else [model]
    for name, value in unusual.items():
        is_of_model = model is not None and name.startswith("model.")
        if name not in (*CHOSEN, SIZE) and not is_of_model:
            several = "_".join(map(str, value)) if isinstance(value, list) else str(value)
            parts.append(f"{name.rpartition('.')[2]}_{several or 'none'}")
    return "-".join(parts)


def _word(value: Any) -> str:
    """A setting's value as a command line has it."""
    if isinstance(value, list):
        return shlex.quote(json.dumps(value, separators=(",", ":")))
    return str(value)


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(settings)))


def _is_single(values: np.ndarray) -> bool:
    """Whether float32 holds these numbers."""
    return bool((values.astype(np.float32) == values).all())


def _write(kept: Sequence[Kept], version: str) -> None:
    counted = Counter(json.dumps(one) for cell, _ in kept for one in cell.settings.items())
    common = dict(json.loads(one) for one, times in counted.items() if times == len(kept))
    cells = []
    for cell, _ in kept:
        told = asdict(cell)
        told["settings"] = {k: v for k, v in cell.settings.items() if k not in common}
        unsaid = {"varied": "", "borders": BORDERS, "truth": ""}
        cells.append({k: v for k, v in told.items() if k not in unsaid or v != unsaid[k]})
    about = {"version": version, "packages": versions(), "settings": common}
    with whole(DATA / CELLS) as path:
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        head = json.dumps(about, indent=1).removesuffix("\n}")
        path.write_text(f'{head},\n "cells": [\n{lines}\n]}}\n')
    arrays = {
        f"{cell.name}.{one}": values.astype("<f4" if _is_single(values) else "<f8")
        for cell, numbers in kept
        for one, values in numbers.items()
    }
    with whole(DATA / TRUTHS) as path, path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


if __name__ == "__main__":
    run_as_command(kept_truths)
