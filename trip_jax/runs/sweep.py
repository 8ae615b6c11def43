"""A sweep: what the directories of its jobs hold, as a table and as labelled arrays."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from trip_jax.learning.quantity import NUMBER
from trip_jax.protocol.methods.facts import TRIP
from trip_jax.results.labels import NAME
from trip_jax.results.meaning import about_method, unit_symbol
from trip_jax.results.variables import DECLARED
from trip_jax.runs.foreign import read_json, read_text
from trip_jax.runs.reading import SUMMARY, existing
from trip_jax.settings.errors import InvalidSetting
from trip_node.deployment.scores import shares

if TYPE_CHECKING:
    import pandas
    import xarray

TABLE = "sweep.csv"
FAILURE = "error.txt"  # in the directory of a job that could not run: why
MARKS = ("job", "status", "accuracy", "message")  # columns of every such table
OF_SCORE = ("client", "score", "share")  # of the highest and of the lowest
FAILED = ("failed", "stopped")  # states that end a sweep with an error


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its directory, settings, status and summary."""

    name: str  # its directory within the sweep's
    overrides: dict[str, str]  # what its command set
    status: str  # of summary.json; "failed": it could not run; "unfinished": runs, or was killed
    message: str  # why it stopped or failed
    summary: dict[str, Any] | None  # None: there are no results

    @property
    def names(self) -> list[str] | None:
        """What its clients are called, in their order; None: they have numbers alone."""
        return self.summary.get("names") if self.summary else None


def read_job(folder: Path, name: str) -> Job:
    """Read the job of a sweep from its directory."""
    import yaml

    path = folder / ".hydra" / "overrides.yaml"
    try:
        named = [override.partition("=") for override in yaml.safe_load(read_text(path)) or []]
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise InvalidSetting(f"{path} is damaged: remove its directory.") from error
    settings = {name.lstrip("+"): value for name, _, value in named if name != "resume"}
    try:
        summary = read_json(folder / "summary.json")
        if missing := [name for name in SUMMARY if name not in summary]:
            raise LookupError(missing)
        return Job(name, settings, summary["status"], summary.get("message", ""), summary)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, LookupError, TypeError):
        return Job(name, settings, "damaged", f"{folder / 'summary.json'} is damaged.", None)
    if (folder / FAILURE).exists():
        return Job(name, settings, "failed", (folder / FAILURE).read_text().strip(), None)
    return Job(name, settings, "unfinished", "", None)


def read_jobs(folder: Path) -> list[Job]:
    """The jobs that have begun, in their order."""

    def order(name: str) -> tuple[Any, ...]:
        return tuple(
            (not part.isdigit(), int(part) if part.isdigit() else part) for part in Path(name).parts
        )

    found = (path.parent.parent for path in folder.glob("**/.hydra/overrides.yaml"))
    names = sorted((str(run.relative_to(folder)) for run in found), key=order)
    return [read_job(folder / name, name) for name in names]


def differing(jobs: Sequence[Job]) -> dict[str, list[str]]:
    """The settings that are not the same in all jobs, each with its value in every job."""
    names = dict.fromkeys(name for job in jobs for name in job.overrides)
    values = {name: [job.overrides.get(name, "") for job in jobs] for name in names}
    return {
        name: of_jobs for name, of_jobs in values.items() if len(jobs) == 1 or len(set(of_jobs)) > 1
    }


def to_frame(jobs: Sequence[Job]) -> "pandas.DataFrame":
    """A row a job: its settings, status, final accuracy, highest and lowest score."""
    import pandas

    rows = []
    for job in jobs:
        row: dict[str, Any] = {"status": job.status, "message": job.message}
        if job.summary:
            scores, share = job.summary["scores"], shares(job.summary["scores"])
            row["accuracy"] = job.summary["final_accuracy"]["mean"]
            for end, i in (("highest", np.argmax(scores)), ("lowest", np.argmin(scores))):
                called = job.names[i] if job.names else int(i)
                values = zip(OF_SCORE, (called, scores[i], share[i]), strict=True)
                row |= {f"{end}_{what}": value for what, value in values}
        rows.append(row)
    of_scores = [f"{end}_{what}" for end in ("highest", "lowest") for what in OF_SCORE]
    frame = pandas.DataFrame(rows, columns=["status", "accuracy", *of_scores, "message"])
    if not any(job.names for job in jobs):
        whole = frame.columns.str.endswith("_client")
        frame = frame.astype(dict.fromkeys(frame.columns[whole], "Int64"))
    names = pandas.DataFrame({"job": [job.name for job in jobs]} | differing(jobs))
    return pandas.concat([names, frame], axis=1)


def write_table(folder: Path) -> "pandas.DataFrame":
    """Write sweep.csv from what the jobs' directories hold by now, and return it."""
    frame = to_frame(read_jobs(folder))
    unfinished = folder / f"{TABLE}.{uuid4().hex}"  # jobs beside each other write it, too
    frame.to_csv(unfinished, index=False, float_format="%.6g")
    os.replace(unfinished, folder / TABLE)
    return frame


def load_sweep(path: str | os.PathLike[str]) -> "xarray.Dataset":
    """The jobs of a sweep, `-m` on the command line, side by side; or all runs beneath a folder.

    Returns:
        dimensions job and client (the most of any job; NaN for clients that a job lacks). Variables
        are score, share (per cent of a job's scores) and liar [job, client], and accuracy and
        accuracy_std [job], the mean and standard deviation of the final models; NaN for a job
        without results. Coordinates along job are its directory, its status ("finished",
        "stopped", "interrupted", "failed" or "unfinished") and each setting that is not the same in
        all, under its name on the command line: `sweep.score.groupby("topology").mean("job")`.
        Where clients have names, client_name holds them along client, or along job and client where
        jobs name different clients; a number then stands for different clients.

    Raises:
        InvalidSetting: there is no such directory, or it holds no sweep.
    """
    import xarray

    folder = existing(path)
    jobs = read_jobs(folder)
    if not jobs or (folder / ".hydra").exists():
        raise InvalidSetting(f"{folder} holds no sweep: give the directory of a run with -m.")
    n = max((len(job.summary["scores"]) for job in jobs if job.summary), default=0)
    score, share = np.full((2, len(jobs), n), np.nan)
    liar = np.zeros((len(jobs), n), bool)
    final = np.full((2, len(jobs)), np.nan)
    for at, job in enumerate(jobs):
        if job.summary:
            scores = job.summary["scores"]
            score[at, : len(scores)], share[at, : len(scores)] = scores, shares(scores)
            liar[at, job.summary["liars"]] = True
            final[:, at] = [job.summary["final_accuracy"][which] for which in ("mean", "std")]
    of_client, of_job = ("job", "client"), ("job",)

    def named(dims: Sequence[str], values: Any, long_name: str, units: str = "") -> tuple[Any, ...]:
        return dims, values, {"long_name": long_name} | ({"units": units} if units else {})

    names = [job.name for job in jobs]
    numbered = all(name.isdigit() for name in names)
    numbers = [int(name) for name in names] if numbered else names
    unit = _unit(jobs)
    called = _names(jobs, n)
    return xarray.Dataset(
        {
            "score": named(of_client, score, DECLARED["score"].long_name, unit),
            "share": named(of_client, share, "share of all scores of the job", "%"),
            "liar": named(of_client, liar, DECLARED["liar"].long_name, NUMBER),
            "accuracy": named(of_job, final[0], "final test accuracy, mean of clients", NUMBER),
            "accuracy_std": named(
                of_job, final[1], "final test accuracy, standard deviation of clients", NUMBER
            ),
        },
        coords={
            "job": named(of_job, numbers, "directory of the job"),
            "client": named(("client",), np.arange(n), "client", NUMBER),
            "status": named(of_job, [job.status for job in jobs], "what became of the job"),
        }
        | ({} if called is None else {NAME["client"]: (of_client[2 - called.ndim :], called)})
        | {
            name: named(of_job, _typed(values), f"setting {name}")
            for name, values in differing(jobs).items()
        },
    )


def _names(jobs: Sequence[Job], n: int) -> np.ndarray | None:
    """What clients are called [n], or [job, n] where jobs differ; None: they have numbers alone."""
    if not any(job.names for job in jobs):
        return None
    numbers = list(map(str, range(n)))
    rows = [(job.names or numbers * bool(job.summary)) for job in jobs]
    names = np.array([[*row[:n], *[""] * (n - len(row))] for row in rows], object)
    known = names[[bool(job.summary) for job in jobs]]
    return known[0] if (known == known[0]).all() else names


def _unit(jobs: Sequence[Job]) -> str:
    """What scores are measured in; jobs may differ."""
    found = {_unit_of_one(job.summary) for job in jobs if job.summary}
    return " or ".join(sorted(found)) or NUMBER


def _unit_of_one(summary: Mapping[str, Any]) -> str:
    """What the scores of a run are measured in; older versions did not write it."""
    if "score_unit" in summary:
        return str(summary["score_unit"]["symbol"])
    contribution = summary.get("config", {}).get("contribution", {})
    return unit_symbol(
        contribution.get("utility", ""), about_method(contribution.get("method", TRIP)).unit
    )


def _typed(values: Sequence[str]) -> np.ndarray:
    """Values of a setting as numbers where all are, else as they were written."""
    for kind in (int, float):
        try:
            return np.array([kind(value) for value in values])
        except ValueError:
            continue
    return np.array(values)
