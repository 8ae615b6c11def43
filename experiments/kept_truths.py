"""Truths of standard cells, packed for `trip-jax judge`.

    python -m experiments.kept_truths from=FOLDER[,FOLDER] [version=1]

FOLDER is the `out` of experiments.methods, whose cells have ground truths of all coalitions and
whose reports name the command. Written are trip_jax/judge/data/cells.json and truths.npz, by the
versions of packages that are installed; experiments.leaderboard trains every run again.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict

from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import read
from trip_jax import Config
from trip_jax.judge.cells import BORDERS, CELLS, DATA, TRUTHS, Cell, numbers_hash
from trip_jax.runs.directory import whole
from trip_jax.runs.provenance import result_settings, versions
from trip_jax.runs.schema import config_of_values
from trip_jax.settings import require
from trip_jax.shapley.borders import border_coalitions

CHOSEN = ("dataset.name", "model.kind", "distribution.kind", "seed")
"""Settings that the command names by their group."""


def kept_truths(arguments: Sequence[str]) -> None:
    """Pack the truths of all cells in some folders."""
    request = Request("kept_truths", arguments, ("from", "version"), {})
    folders = [Path(one) for one in request.several("from", "outputs/tables_cpu")]
    paths = sorted(path for one in folders for path in (one / "cells").glob("*/decentralised.npz"))
    require(bool(paths), f"from={folders[0]} holds no cell with a ground truth.")
    cells = sorted(map(_cell, paths), key=_order)
    _write(cells, request.one("version", "1"))
    print(f"{len(cells)} cells in {DATA}")


Kept = tuple[Cell, dict[str, np.ndarray]]


def _order(kept: Kept) -> tuple[Any, ...]:
    cell = kept[0]
    return cell.dataset, cell.seed, cell.distribution, cell.topology


def _cell(path: Path) -> Kept:
    """A cell of the experiments and its numbers."""
    settings = json.loads((path.parent / "settings.json").read_text())
    config = config_of_values(unflatten_dict(settings, sep="."))
    truth = read(path)
    inside = truth["inside"]
    rows = {tuple(row): k for k, row in enumerate(inside.tolist())}
    few = border_coalitions(inside.shape[1], BORDERS)
    utilities = truth["utilities"][[rows[tuple(row)] for row in few.tolist()]]
    require(len(inside) == 2 ** inside.shape[1], f"{path} has not executed all coalitions.")
    require(
        bool((utilities.astype(np.float32) == utilities).all()), f"{path} holds more than float32."
    )
    topology = config.topology.kind
    topology = "directed" if topology == "regular" and config.topology.directed else topology
    topology = "time_varying" if config.topology.redraw_every else topology
    defaults = result_settings(Config().calibrated())
    now = json.loads(json.dumps(result_settings(config)))
    differing = {k: v for k, v in now.items() if v != json.loads(json.dumps(defaults[k]))}
    numbers = {"values": truth["values"], "utilities": utilities}
    dataset, distribution = config.dataset.name, config.distribution.kind
    name = "-".join((dataset, distribution, topology, str(config.seed)))
    groups: dict[str, Any] = {"dataset": dataset, "model": config.model.kind}
    groups |= {"distribution": distribution, "topology": topology, "seed": config.seed}
    others = {k: v for k, v in differing.items() if k not in CHOSEN and "topology." not in k}
    given = " ".join(f"{k}={v}" for k, v in (groups | others | {"devices": 1}).items())
    command = f"python -m experiments.methods {given}"
    sha256 = numbers_hash(**numbers)
    which = (name, dataset, distribution, topology, config.seed)
    return Cell(*which, differing, command, sha256), numbers


def _write(kept: Sequence[Kept], version: str) -> None:
    counted = Counter(json.dumps(one) for cell, _ in kept for one in cell.settings.items())
    common = dict(json.loads(one) for one, times in counted.items() if times == len(kept))
    cells = [
        vars(cell) | {"settings": {k: v for k, v in cell.settings.items() if k not in common}}
        for cell, _ in kept
    ]
    about = {"version": version, "packages": versions(), "settings": common}
    with whole(DATA / CELLS) as path:
        lines = ",\n".join(json.dumps(cell) for cell in cells)
        head = json.dumps(about, indent=1).removesuffix("\n}")
        path.write_text(f'{head},\n "cells": [\n{lines}\n]}}\n')
    arrays = {
        f"{cell.name}.{one}": values.astype("<f4" if one == "utilities" else "<f8")
        for cell, numbers in kept
        for one, values in numbers.items()
    }
    with whole(DATA / TRUTHS) as path, path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


if __name__ == "__main__":
    run_as_command(kept_truths)
