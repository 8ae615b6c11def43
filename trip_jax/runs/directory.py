"""The run directory: what a finished run leaves, and how to read it again.

`rounds.csv` grows while the run goes on; `summary.json` is written once all numbers are and says
whether the run is over. Figures and the report follow; they can be made again from the rest.
"""

import csv
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import jax
import numpy as np

from trip_jax.data.partition import Federation
from trip_jax.errors import InvalidSetting
from trip_jax.history import Past, Result, Timing
from trip_jax.learning.evaluation import ACCURACY, LOSS
from trip_jax.learning.memory import peak_bytes
from trip_jax.learning.utilities import columns
from trip_jax.protocol.messages import Record
from trip_jax.runs.costs import costs
from trip_jax.runs.dataset import lcv_by_contributor, to_dataset
from trip_jax.runs.lock import locked
from trip_jax.runs.propagation import rows_of_phi
from trip_jax.runs.provenance import git_revision, versions
from trip_jax.settings.declared import instance, path_of, seed_of

if TYPE_CHECKING:
    import pandas
    import xarray


REPORT = "report.html"
SUMMARY = ("final_accuracy", "scores", "liars")
ARRAYS = ("score", "liar", "examples", "accuracy", "members", "mask")
"""What the files of a run of any version hold at least."""

RESULTS = ("summary.json", "results.nc", "rounds.csv", "figures", REPORT)


@dataclass(frozen=True)
class Run:
    """A run directory read back."""

    summary: dict[str, Any]
    rounds: "pandas.DataFrame"  # rounds.csv
    data: "xarray.Dataset"  # results.nc

    def rows_of_phi(self, clients: Sequence[int]) -> np.ndarray:
        """[R, n] contributions to the final models of some clients, whether or not phi was kept."""
        return rows_of_phi(self.data, clients)

    def lcv_by_contributor(self, utility: str | None = None) -> "xarray.DataArray":
        """psi^(i,t)_j [round, client, contributor], see `trip_jax.runs.dataset`."""
        return lcv_by_contributor(self.data, utility)


class RoundLog:
    """rounds.csv, a line as soon as its round is over; use it as a context manager.

    Args:
        past: rounds that come first.
    """

    def __init__(self, folder: Path, past: Past | None = None):
        self._path = folder / "rounds.csv"
        self._past = past
        self._file: TextIO | None = None  # until a round is over: a run may be refused before

    def __enter__(self) -> "RoundLog":
        if self._past:
            for t, news in enumerate(zip(self._past.records, self._past.timings, strict=True)):
                self.write(t, *news)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()

    def write(self, t: int, record: Record, timing: Timing) -> None:
        """Append round t, counted from 0 and written from 1."""
        if self._file is None:
            self._file = self._path.open("w", newline="", buffering=1)
            csv.writer(self._file).writerow(("round", *COLUMNS))
        numbers = numbers_of(record, timing).values()
        csv.writer(self._file).writerow((t + 1, *(f"{number:.6g}" for number in numbers)))


def _of_accuracy(statistic: Callable[[np.ndarray], Any]) -> Callable[[Record, Timing], Any]:
    return lambda record, _: statistic(np.asarray(record.utility)[:, ACCURACY])


COLUMNS: dict[str, Callable[[Record, Timing], Any]] = {
    "accuracy_mean": _of_accuracy(np.mean),
    "accuracy_std": _of_accuracy(np.std),
    "accuracy_min": _of_accuracy(np.min),
    "accuracy_max": _of_accuracy(np.max),
    "loss_mean": lambda record, _: -np.asarray(record.utility)[:, LOSS].mean(),
    "train_loss_mean": lambda record, _: np.nanmean(record.train_loss),  # a liar's own may fail
    "filtered_models": lambda record, _: (~record.accepted).sum(),
    "unsent_models": lambda record, _: (~record.arrived).sum(),
    "flagged_reports": lambda record, _: record.flagged.sum(),
    "seconds_training": lambda _, timing: timing.training,
    "seconds_evaluation": lambda _, timing: timing.evaluation,
    "seconds_coordination": lambda _, timing: timing.coordination,
}
"""What rounds.csv says of a round beside its number."""

FIRST_COLUMNS = f"round,{next(iter(COLUMNS))}"
"""What a rounds.csv of any version begins with."""


def numbers_of(record: Record, timing: Timing) -> dict[str, float]:
    """COLUMNS of one round."""
    return {name: float(number(record, timing)) for name, number in COLUMNS.items()}


def save_run(
    folder: str | os.PathLike[str],
    result: Result,
    federation: Federation,
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """Write a result as a run directory, figures and report included.

    Args:
        title: a sentence that says what was run.
        settings: that the result depends on, by name; kept in results.nc.
        about: further entries of summary.json; `seed` is kept in results.nc, too.

    Returns:
        what summary.json says.

    Raises:
        InvalidSetting: the directory holds a run, or a file of such a name, already; or an argument
            is none that can be written.
    """
    folder = path_of("folder", folder)
    instance("result", result, Result, "Simulation.run gives one")
    instance("federation", federation, Federation, "tj.distribute gives one")
    instance("title", title, str, "say what was run")
    if "seed" in about:
        about["seed"] = seed_of(about["seed"])
    try:
        json.dumps([settings, about])
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"settings and further entries must fit into JSON: {error}."
        ) from error
    with locked(folder):
        for name in RESULTS:
            if (folder / name).exists():
                raise InvalidSetting(
                    f"{folder} holds {name} already: choose another directory, or remove it."
                )
        return write_run(folder, result, federation, title=title, settings=settings, **about)


def write_run(
    folder: Path,
    result: Result,
    federation: Federation,
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """As `save_run`, over an earlier part of the same run."""
    (folder / "summary.json").unlink(missing_ok=True)  # not to vouch for files of two runs
    records = replace(result.records, kept=None)
    with RoundLog(folder) as log:
        for t, timing in enumerate(result.timings):
            log.write(t, jax.tree.map(lambda rounds, t=t: rounds[t], records), timing)
    data = to_dataset(result, federation, title)
    data.attrs |= {"seed": about["seed"]} if "seed" in about else {}
    data.attrs |= {"settings": json.dumps(settings)} if settings else {}
    with whole(folder / "results.nc") as path:
        data.to_netcdf(path, engine="h5netcdf")
    summary = {"title": title, "status": "finished"} | about | summarise(result)
    if "score_error" in data:
        summary["score_errors"] = data.score_error.values.tolist()
    with whole(folder / "summary.json") as path:
        path.write_text(json.dumps(summary, indent=2) + "\n")
    shutil.rmtree(folder / "figures", ignore_errors=True)  # of fewer rounds
    (folder / REPORT).unlink(missing_ok=True)
    draw_figures(folder, data)
    write_report(folder, data, summary)
    return summary


def draw_figures(folder: Path, data: "xarray.Dataset") -> None:
    """Draw the figures of a run, unless all are there."""
    from trip_jax.runs.figures import draw_all

    if (folder / "figures").exists():
        return
    with whole(folder / "figures") as path:
        shutil.rmtree(path, ignore_errors=True)
        draw_all(data, path)


def write_report(folder: Path, data: "xarray.Dataset", summary: Mapping[str, Any]) -> Path:
    """Write the page that shows a run, and say where it is."""
    from trip_jax.runs.pages.run_page import run_page

    report = folder / REPORT
    with whole(report) as path:
        path.write_text(run_page(data, summary), encoding="utf-8")
    return report


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Another name to write to; the file or folder takes its own when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    yield partial
    os.replace(partial, path)


def summarise(result: Result) -> dict[str, Any]:
    """What summary.json says of a result."""
    final = result.accuracy[-1]
    timing = Timing.total(result.timings)
    liar = np.isin(np.arange(len(final)), result.liars)
    return {
        "rounds": len(result.accuracy),
        "final_accuracy": {"mean": float(final.mean()), "std": float(final.std())},
        "scores": [float(score) for score in result.scores],
        "liars": [int(i) for i in result.liars],
        "mean_score": {
            "honest": float(result.scores[~liar].mean()) if not liar.all() else None,
            "liars": float(result.scores[liar].mean()) if liar.any() else None,
        },
        "filtered_models": int((~result.records.accepted).sum()),
        "unsent_models": int((~result.records.arrived).sum()),
        "flagged_reports": int(result.records.flagged.sum()),
        **_sampling(result),
        "seconds": {"compilation": result.compile_seconds}
        | {phase: getattr(timing, phase) for phase in ("training", "evaluation", "coordination")},
        "per_second": {
            "rounds": len(result.accuracy) / timing.seconds,
            "samples": timing.samples / timing.training,
            "coalitions": timing.coalitions / timing.evaluation,
        },
        "memory": {"planned_bytes": result.planned_bytes, "peak_bytes": peak_bytes()},
        "costs": costs(result),
        "device": describe_device(result),
        "devices": result.n_devices,
        "host": f"{platform.machine()}, {os.cpu_count()} cores",
        "precision": result.precision,
        "versions": versions(),
        "revision": git_revision(),
    }


def describe_device(result: Result) -> str:
    """What computed a result."""
    device = jax.devices()[0]
    return f"{device.platform}: {device.device_kind}, {result.n_devices} of them"


def _sampling(result: Result) -> dict[str, Any]:
    """How many contribution vectors were estimated, and how well; nothing if none was."""
    rounds = range(len(result.records.lcv))
    mask = np.stack([np.asarray(result.topology.at(t).mask) for t in rounds])  # [T, n, M]
    sampled = result.contribution.samples(mask.sum(axis=-1))
    if not sampled.any():
        return {}
    utility = result.contribution.utility
    error = result.records.lcv_error[..., columns(utility).index(utility)]
    return {
        "sampled_neighbourhoods": int(sampled.sum()),  # of rounds times clients
        "mean_standard_error": float(error[mask & sampled[..., None]].mean()),
    }


def is_over(folder: Path) -> bool:
    """Whether a directory holds a run that will not go on: one that finished or diverged.

    Raises:
        InvalidSetting: its summary.json is damaged.
    """
    path = folder / "summary.json"
    try:
        return bool(json.loads(path.read_text())["status"] != "interrupted")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidSetting(f"{path} is damaged: remove it, and the run goes on.") from error


def load_run(path: str | os.PathLike[str]) -> Run:
    """Read a run directory.

    Raises:
        InvalidSetting: the directory holds no run, or one that was cut off or is damaged. One that
            stopped because a model diverged, or was interrupted after a round, is read; its summary
            has the status "stopped" or "interrupted".
    """
    import h5py
    import pandas
    import xarray

    folder = existing(path)
    if not (folder / "summary.json").is_file():
        raise InvalidSetting(
            f"{folder} holds no finished run: a run directory has a summary.json once it is over."
        )

    def load(path: Path) -> "xarray.Dataset":
        with h5py.File(path) as file:
            file.attrs.get("_nc3_strict")  # where h5netcdf fails it fails once more when collected
        return xarray.load_dataset(path, engine="h5netcdf")

    data = _read(folder / "results.nc", load, ARRAYS)

    def read_rounds(path: Path) -> "pandas.DataFrame":
        rounds = pandas.read_csv(path)
        if len(rounds) < data.sizes["round"]:  # a run that goes on has more
            raise LookupError("rounds")
        return rounds

    return Run(
        summary=_read(folder / "summary.json", lambda path: json.loads(path.read_text()), SUMMARY),
        rounds=_read(folder / "rounds.csv", read_rounds, ("round",)),
        data=data,
    )


def existing(path: str | os.PathLike[str]) -> Path:
    """The path of a directory; raises InvalidSetting if there is none."""
    folder = path_of("The path", path)
    if not folder.is_dir():
        raise InvalidSetting(f"There is no directory {folder}: name one that a run has written.")
    return folder


def _read(path: Path, read: Callable[[Path], Any], names: Sequence[str]) -> Any:
    """One file of a run; raises InvalidSetting if it is not as the run has left it.

    Args:
        names: of what it must hold.
    """
    try:
        held = read(path)
        if missing := [name for name in names if name not in held]:
            raise LookupError(missing)
        return held
    except (OSError, ValueError, LookupError, RuntimeError, TypeError) as error:  # HDF5's are many
        number = getattr(error, "errno", None)
        reason = f"can't be read ({os.strerror(number)})" if number else "is damaged"
        raise InvalidSetting(f"{path} {reason}: repeat the run.") from error
