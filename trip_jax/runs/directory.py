"""The run directory: what a finished run leaves.

`rounds.csv` grows while the run goes on; `summary.json` is written once all numbers are and says
whether the run is over. Figures and the report follow; they can be made again from the rest.
"""

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

import jax
import numpy as np

from trip_jax.data.partition import Partition
from trip_jax.learning.memory import peak_bytes
from trip_jax.learning.utilities import columns
from trip_jax.results.dataset import to_dataset
from trip_jax.results.meaning import unit
from trip_jax.results.result import Result, Timing
from trip_jax.runs.agreement import summarised
from trip_jax.runs.costs import costs
from trip_jax.runs.held_truth import HeldTruth
from trip_jax.runs.lock import locked
from trip_jax.runs.provenance import federation_settings, git_revision, versions
from trip_jax.runs.round_log import RoundLog
from trip_jax.settings.declared import instance, path_of, seed_of
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.figures import FORMATS, Drawing, drawing_of
from trip_jax.settings.own_files import refuse_links, remove_files
from trip_jax.truth.shapley_value import GroundTruth

if TYPE_CHECKING:
    import xarray


REPORT = "report.html"
RESULTS = ("summary.json", "results.nc", "rounds.csv", "figures", REPORT)
FIGURES = re.compile(rf"(accuracy|phi|scores|graph)\.({'|'.join(FORMATS)})")
"""What is drawn in the folder of figures; other files there stay."""


def save_run(
    folder: str | os.PathLike[str],
    result: Result,
    federation: Partition | None = None,
    *,
    title: str | None = None,
    settings: Mapping[str, Any] | None = None,
    figures: Sequence[str] | str = ("png",),
    figure_columns: int | None = None,
    figure_titles: bool = True,
    truth: GroundTruth | None = None,
    **about: Any,
) -> dict[str, Any]:
    """Write a result as a run directory, figures and report included.

    Args:
        folder: the directory, which is made. If it holds a run, folder-2, folder-3, ... is taken,
            with a warning.
        result: what `Simulation.run` returned.
        federation: the clients' data as `distribute` gave them, whose levels figures and report
            show; None: as the simulation was given them.
        title: a sentence that says what was run; None: the settings that are no defaults.
        settings: further settings that the result depends on, by name. They are kept with those of
            `Simulation` in results.nc and, as `settings`, in summary.json.
        figures: formats of the figures, some of "png", "pdf" and "svg".
        figure_columns: columns of a paper that figures are wide, 1 or 2; None: what each needs.
        figure_titles: whether figures say above their axes what they show.
        truth: what `decentralised_truth` returned for the same simulation, which report and
            comparison then show beside the scores.
        about: further entries of summary.json; `seed` is kept in results.nc, too, and is that of
            the simulation unless it is given.

    Returns:
        what summary.json says.

    Raises:
        InvalidSetting: the directory holds a link of a run's names, or another process writes
            there; or an argument is none that can be written.
    """
    folder = path_of("folder", folder)
    instance("result", result, Result, "Simulation.run gives one")
    federation = result.federation.partition if federation is None else federation
    instance("federation", federation, Partition, "tj.distribute gives one")
    title = result.title if title is None else title
    instance("title", title, str, "say what was run")
    drawing = drawing_of(figures, figure_columns, figure_titles)
    held = None
    if truth is not None:
        truth = instance(
            "truth", truth, GroundTruth, "tj.decentralised_truth(simulation) gives one"
        )
        held = HeldTruth.of(truth, result.contribution.utility, result.federation.n)
    about["seed"] = seed_of(about.get("seed", result.federation.settings.seed))
    try:
        json.dumps([settings, about])
    except (TypeError, ValueError) as error:
        raise InvalidSetting(
            f"settings and further entries must fit into JSON: {error}."
        ) from error
    settings = federation_settings(result) | {"seed": about["seed"]} | dict(settings or {})
    about = {"settings": settings, **about}
    with _free(folder) as place:
        return _write(place, result, federation, title, settings, about, drawing, held)


@contextmanager
def _free(folder: Path) -> Iterator[Path]:
    """The folder or, if it holds a run, the first of folder-2, folder-3, ... that holds none."""
    numbered = (folder.with_name(f"{folder.name}-{k}") for k in count(2))
    for place in chain([folder], numbered):
        with locked(place):
            refuse_links(place / name for name in RESULTS)
            if any((place / name).exists() for name in RESULTS):
                continue
            if place != folder:
                warn(
                    f"{folder} holds a run already, so this one is saved in {place}.", stacklevel=4
                )
            yield place
            return


def write_run(
    folder: Path,
    result: Result,
    federation: Partition,
    *,
    title: str,
    settings: Mapping[str, Any] | None = None,
    drawing: Drawing = Drawing(),
    **about: Any,
) -> dict[str, Any]:
    """Write the result of a configured run, over an earlier part of the same run.

    Args: as for `save_run`, but that settings and seed are kept as they are given alone, and
        `drawing` says how figures are written.
    """
    return _write(folder, result, federation, title, settings, about, drawing)


def _write(
    folder: Path,
    result: Result,
    federation: Partition,
    title: str,
    settings: Mapping[str, Any] | None,
    about: Mapping[str, Any],
    drawing: Drawing,
    held: HeldTruth | None = None,
) -> dict[str, Any]:
    (folder / "summary.json").unlink(missing_ok=True)  # not to vouch for files of two runs
    records = replace(result.records, kept=None)
    with RoundLog(folder, wave=result.topology.wave) as log:
        for t, timing in enumerate(result.timings):
            log.write(t, jax.tree.map(lambda rounds, t=t: rounds[t], records), timing)
    data = to_dataset(result, federation, title)
    data.attrs |= {"seed": about["seed"]} if "seed" in about else {}
    data.attrs |= {"settings": json.dumps(settings)} if settings else {}
    summary = {"title": title, "status": "finished"} | dict(about) | summarise(result)
    summary["score_unit"] = {"words": unit(data.attrs), "symbol": data.score.attrs["units"]}
    if "score_error" in data:
        summary["score_errors"] = data.score_error.values.tolist()
    if held is not None:
        data = held.added_to(data)
        summary["truth"] = held.in_summary(data)
    write_results(folder, data, summary, drawing)
    return summary


def write_results(
    folder: Path, data: "xarray.Dataset", summary: Mapping[str, Any], drawing: Drawing
) -> None:
    """Write results.nc, summary.json, figures and report, over those of an earlier part of a run.

    Args:
        data, summary: the contents of results.nc and summary.json.
        drawing: how figures are written.
    """
    with whole(folder / "results.nc") as path:
        data.to_netcdf(path, engine="h5netcdf")
    with whole(folder / "summary.json") as path:
        path.write_text(json.dumps(summary, indent=2) + "\n")
    remove_files(folder / "figures", FIGURES)  # figures of fewer rounds
    (folder / REPORT).unlink(missing_ok=True)
    draw_figures(folder, data, drawing)
    write_report(folder, data, summary)


def draw_figures(
    folder: Path, data: "xarray.Dataset", drawing: Drawing = Drawing(), again: bool = False
) -> None:
    """Draw the figures of a run, unless all are there.

    Args:
        again: draw them also where they exist; figures in other formats stay.
    """
    from trip_jax.results.figures import draw_all

    figures = folder / "figures"
    existing = sorted(figures.iterdir()) if figures.exists() else []
    if not again and any(FIGURES.fullmatch(path.name) for path in existing):
        return
    with whole(figures) as path:
        remove_files(path, FIGURES)
        draw_all(data, path, drawing)
        for other in existing:
            if not (path / other.name).exists():
                other.rename(path / other.name)
        remove_files(figures, FIGURES)


def write_report(folder: Path, data: "xarray.Dataset", summary: Mapping[str, Any]) -> Path:
    """Write report.html, the page that shows a run, and return its path."""
    from trip_jax.runs.pages.run_page import run_page

    report = folder / REPORT
    with whole(report) as path:
        path.write_text(run_page(data, summary), encoding="utf-8")
    return report


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name to write to, which becomes the final name when writing is complete.

    What a failure leaves of a file is removed.

    Raises:
        InvalidSetting: the temporary name is that of a link.
    """
    partial = path.with_name(f"{path.name}.partial")
    refuse_links([partial])
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):  # it is a folder, or the disk is gone
            partial.unlink()
        raise


def summarise(result: Result) -> dict[str, Any]:
    """The numbers of a result that summary.json holds."""
    final = result.accuracy[-1]
    timing = Timing.total(result.timings)
    liar = np.isin(np.arange(len(final)), result.liars)
    return {
        "rounds": len(result.accuracy),
        **_waves(result),
        "final_accuracy": {"mean": float(final.mean()), "std": float(final.std())},
        **({"names": list(result.names)} if result.names else {}),
        **({"graphs": list(map(asdict, result.topology.files))} if result.topology.files else {}),
        "scores": [float(score) for score in result.scores],
        "liars": [int(i) for i in result.liars],
        "mean_score": {
            "honest": float(result.scores[~liar].mean()) if not liar.all() else None,
            "liars": float(result.scores[liar].mean()) if liar.any() else None,
        },
        "filtered_models": int(result.records.filtered.sum()),
        "unsent_models": int(result.records.unsent.sum()),
        "flagged_reports": int(result.records.flagged.sum()),
        **_sampling(result),
        **({"privacy": asdict(result.guarantee)} if result.guarantee else {}),
        **({"broadcast": summarised(result.broadcast)} if result.broadcast else {}),
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
    """The kind and number of devices that computed a result."""
    device = jax.devices()[0]
    return f"{device.platform}: {device.device_kind}, {result.n_devices} of them"


def _waves(result: Result) -> dict[str, Any]:
    """How long waves take in simulated time, and how often each client trained in them."""
    rounds, topology = len(result.accuracy), result.topology
    if topology.wave is None:
        return {}
    present = topology.present
    n = topology.n_clients
    trained = [rounds] * n if present is None else np.asarray(present)[:rounds].sum(axis=0).tolist()
    return {"simulated_time": rounds * topology.wave, "local_rounds": trained}


def _sampling(result: Result) -> dict[str, Any]:
    """How many contribution vectors were estimated, and how well; nothing if none was."""
    mask = result.topology.masks(len(result.records.lcv))
    sampled = result.contribution.samples(mask.sum(axis=-1))
    if not sampled.any():
        return {}
    utility = result.contribution.utility
    error = result.records.lcv_standard_error[..., columns(utility).index(utility)]
    return {
        "sampled_neighbourhoods": int(sampled.sum()),  # of rounds times clients
        "mean_standard_error": float(error[mask & sampled[..., None]].mean()),
    }
