"""Joins the results of two folders, of two machines perhaps, if they belong together."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from experiments.paper.queue.records import Record, Records, table, write_table
from trip_jax.runs.checkpoints import refuse_changes
from trip_jax.settings.errors import InvalidSetting

ROUNDING = 1e-4
"""Numbers of a unit that differ by no more, relative to the larger or absolutely, are the same."""

OTHER_DEVICE = 0.02
"""The same between devices, which add in other orders: accuracies differ by a few of 500 images."""

KEPT = ("tables/cells", "large/runs")
"""Folders of federations in a state folder."""


def merge(arguments: Sequence[str]) -> None:
    """Write the units, the federations and the table of two folders into another.

    Where both have a unit, the first one's is taken.

    Args:
        arguments: the two folders and out=DIR, which may be one of them.

    Raises:
        InvalidSetting: they are of other settings or versions, or differ in a unit's numbers.
    """
    folders = [Path(one) for one in arguments if not one.startswith("out=")]
    outs = [Path(one.removeprefix("out=")) for one in arguments if one.startswith("out=")]
    if len(folders) != 2 or len(outs) != 1:
        raise InvalidSetting("merge takes two folders and out=DIR.")
    (out,) = outs
    first, second = (Records(folder) for folder in folders)
    if first.about != second.about:
        raise InvalidSetting(
            f"{folders[0]} and {folders[1]} hold experiments of other settings: "
            f"{json.dumps(first.about)} and {json.dumps(second.about)}; merge what agrees."
        )
    one, other = first.all(), second.all()
    for name in one.keys() & other.keys():
        _refuse_differences(folders, one[name], other[name])
    joined = other | one
    merged = Records(out, {name: first.about[name] for name in first.about if name != "format"})
    there = merged.all()
    for name in joined.keys() & there.keys():
        _refuse_differences([folders[0], out], joined[name], there[name])
    for record in joined.values():
        merged.keep(record)
    for folder in folders:
        _copy_federations(folder, out)
    write_table(table(merged.all()), out / "paper.csv")
    print(f"{len(merged.all())} units in {out}: {len(one)} and {len(other)} were joined.")


def _refuse_differences(folders: Sequence[Path], one: Record, other: Record) -> None:
    settings = dict(one.settings), dict(other.settings)
    refuse_changes(folders[0] / one.unit, *settings)
    if one.made["trip_jax"] and other.made["trip_jax"]:
        versions = one.made["trip_jax"], other.made["trip_jax"]
        if versions[0] != versions[1]:
            raise InvalidSetting(
                f"{one.unit} was computed by trip_jax {versions[0]} in {folders[0]} and by "
                f"{versions[1]} in {folders[1]}: merge results of one version."
            )
    same = one.made["device"] == other.made["device"]
    tolerance = ROUNDING if same else OTHER_DEVICE
    if len(one.rows) != len(other.rows):
        raise InvalidSetting(
            f"{one.unit} has {len(one.rows)} numbers in {folders[0]} and {len(other.rows)} in "
            f"{folders[1]}: remove the one that you don't trust."
        )
    for row, its in zip(one.rows, other.rows, strict=True):
        about = {name: value for name, value in row.items() if name != "ours"}
        if about != {name: value for name, value in its.items() if name != "ours"}:
            raise InvalidSetting(
                f"{one.unit} holds other numbers in {folders[0]} than in {folders[1]}: remove "
                "the one that you don't trust."
            )
        a, b = float(row["ours"]), float(its["ours"])
        if not (
            math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)
            or (math.isnan(a) and math.isnan(b))
        ):
            what = " ".join(filter(None, (row["case"], row["method"], row["measure"])))
            raise InvalidSetting(
                f"{one.unit} differs: {what} is {a:.6g} in {folders[0]} and {b:.6g} in "
                f"{folders[1]}: remove the one that you don't trust."
            )


def _copy_federations(folder: Path, out: Path) -> None:
    """Copy what single experiments go on from.

    Each file or folder of a federation, such as its run or one of its truths, is copied whole, and
    only where `out` lacks it.
    """
    for kept in KEPT:
        for part in sorted((folder / kept).glob("*/*")):
            target = out / kept / part.parent.name / part.name
            linked = part.is_symlink() or part.parent.is_symlink()
            if linked or target.is_file() or (target.is_dir() and any(target.iterdir())):
                continue
            if part.is_dir():
                shutil.copytree(part, target, symlinks=True, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(part, target)
