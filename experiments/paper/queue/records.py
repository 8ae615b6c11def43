"""What finished units left: a file each, and the table of all their numbers."""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas

import trip_jax
from experiments.harness.result_table import runs
from experiments.paper.queue.unit import RESULT, Row, Unit
from trip_jax.learning.devices import available
from trip_jax.runs.checkpoints import refuse_changes
from trip_jax.runs.directory import whole
from trip_jax.runs.provenance import git_revision
from trip_jax.settings.errors import InvalidSetting

FORMAT = 1
"""Raised when what is computed changes, so that results of both don't mix."""

MADE = ("machine", "device", "commit", "jax", "trip_jax", "seconds", "command", "source")
"""Columns that say where a number comes from: `source` is the kept run of which it was taken."""

COLUMNS = (*RESULT, "unit", *MADE)


def machine() -> str:
    """The processor that this runs on."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def device() -> str:
    """What JAX computes on; a CPU becomes one device a core, as `available` has it."""
    return str(available()[0].device_kind)


@dataclass(frozen=True)
class Record:
    """A finished unit: its settings, its rows, and where they come from."""

    unit: str
    settings: Mapping[str, Any]
    rows: Sequence[Row]
    made: Mapping[str, Any]


def made_here(unit: Unit, seconds: float) -> dict[str, Any]:
    """Where numbers computed now come from."""
    return {
        "machine": machine(),
        "device": device(),
        "commit": git_revision() or "",
        "jax": version("jax"),
        "trip_jax": trip_jax.__version__,
        "seconds": round(seconds, 1),
        "command": unit.command,
        "source": "",
    }


def taken_from(unit: Unit, run: str) -> dict[str, Any]:
    """Where numbers come from that a kept run has (experiments/results.csv)."""
    made = dict(runs().set_index("run").loc[run])
    there = {name: made.get(name, "") for name in MADE}
    seconds = float(there["seconds"]) if there["seconds"] else ""
    return there | {"seconds": seconds, "command": unit.command, "source": run}


class Records:
    """Those of a state folder.

    Args:
        folder: the state folder.
        about: what all units have in common: the scale and settings of all federations.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any] | None = None):
        self._folder = folder / "units"
        path = folder / "about.json"
        if about is None and not path.exists():
            raise InvalidSetting(f"{folder} holds no results of experiments.paper: name another.")
        now = json.loads(json.dumps({"format": FORMAT, **(about or {})}))
        then = _read(path) if path.exists() else now
        _refuse_other_format(folder, then)
        if about is not None and then != now:
            raise InvalidSetting(
                f"{folder} holds results of {_said(then)}, not of {_said(now)}: give the same, or "
                "choose another folder with out=DIR."
            )
        self.about = then
        self._path = path

    def keep(self, record: Record) -> None:
        """Write one; it is there whole or not at all."""
        path = self._of(record.unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            with whole(self._path) as unfinished:
                unfinished.write_text(json.dumps(self.about, indent=1))
        with whole(path) as unfinished:
            unfinished.write_text(json.dumps(vars(record), indent=1))

    def get(self, unit: Unit) -> Record | None:
        """That of a unit, if it is finished.

        Raises:
            InvalidSetting: it was computed with other settings.
        """
        path = self._of(unit.name)
        if not path.exists():
            return None
        record = Record(**_read(path))
        refuse_changes(path, dict(record.settings), json.loads(json.dumps(unit.settings)))
        return record

    def all(self) -> dict[str, Record]:
        """All of them by unit."""
        found = [Record(**_read(path)) for path in sorted(self._folder.rglob("*.json"))]
        return {record.unit: record for record in found}

    def _of(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def table(records: Mapping[str, Record], order: Sequence[str] = ()) -> pandas.DataFrame:
    """A row a number.

    Args:
        order: of units; others follow by name.
    """
    names = [*(name for name in order if name in records), *sorted(records.keys() - set(order))]
    found = [
        {**row, "unit": name, **records[name].made} for name in names for row in records[name].rows
    ]
    return pandas.DataFrame(found, columns=list(COLUMNS))


def write_table(frame: pandas.DataFrame, path: Path) -> None:
    """As CSV, with numbers to six digits."""
    with whole(path) as unfinished:
        frame.to_csv(unfinished, index=False, float_format="%.6g")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except ValueError as error:
        raise InvalidSetting(f"{path} is damaged: remove it to have it computed again.") from error


def _refuse_other_format(folder: Path, about: Mapping[str, Any]) -> None:
    if about.get("format") != FORMAT:
        raise InvalidSetting(
            f"{folder} holds results of another version (format {about.get('format')}, here "
            f"{FORMAT}): go on with that version, or choose another folder with out=DIR."
        )


def _said(about: Mapping[str, Any]) -> str:
    return " ".join([f"scale={about.get('scale')}", *about.get("overrides", ())])
