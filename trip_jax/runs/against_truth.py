"""A run held against the truth: the whole run, executed again for coalitions of its clients.

This follows a run that is over and whole on the disk. After an interruption the same command goes
on with the executions.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trip_jax import __version__
from trip_jax.config import Config
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.directory import write_results
from trip_jax.runs.executions import executed
from trip_jax.runs.held_truth import HeldTruth
from trip_jax.runs.provenance import json_hash
from trip_jax.runs.reading import Run, load_run
from trip_jax.runs.resume import depends_on
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.simulation import Simulation
from trip_jax.truth.settings import Executable

TRUTH_FOLDERS = FINISHED, CHUNK = "truth", "truth.chunk"
"""The folders in which finished executions and the running chunk are kept."""

WITHOUT_INFLUENCE = ("contribution.", "defence.", "protocol.", "keep_phi")
"""Settings, or how their names begin, that change what is told of a run and not what it learns."""


def hold_against_truth(
    folder: Path, config: Config, simulation: Simulation, truth_of: Executable
) -> dict[str, Any]:
    """Execute the truth of a run that is over, and add it to the run's directory.

    Returns:
        what summary.json says.

    Raises:
        Interrupted: by SIGTERM or SIGINT; finished executions are kept.
    """
    run, about = load_run(folder), depends_on(config, simulation)
    about["settings"] = {
        name: value
        for name, value in about["settings"].items()
        if name == "contribution.utility" or not name.startswith(WITHOUT_INFLUENCE)
    }
    settings = {name: value for name, value in asdict(config.truth).items() if value is not None}
    about["settings"] |= {f"truth.{name}": value for name, value in settings.items()}
    key = json_hash([about, __version__])
    finished = Checkpoints(folder / FINISHED, about, keep=1)
    held = _of_another_job(folder, key)
    if held is None:
        chunk = Checkpoints(folder / CHUNK, about, keep=1)
        try:
            truth, seconds = executed(truth_of, "truth", finished, chunk)
        except Interrupted as error:
            raise Interrupted(
                f"interrupted while the truth was executed; the run and finished executions are "
                f"kept in {folder}: the same command with resume=auto goes on."
            ) from error
        held = HeldTruth.of(truth, config.contribution.utility, config.n_clients, seconds)
    data = held.added_to(run.data)
    summary = run.summary | {"truth": settings | held.in_summary(data) | {"key": key}}
    if "config" in summary:
        summary["config"] |= {"truth": asdict(config.truth)}
    write_results(folder, data, summary, config.drawing)
    finished.remove()
    return summary


def _of_another_job(folder: Path, key: str) -> HeldTruth | None:
    """The truth of another run in the same sweep, if it is that of the same federation."""
    for other in folder.parent.glob("*/summary.json"):
        try:
            if json.loads(other.read_text())["truth"]["key"] == key:
                return _read(load_run(other.parent))
        except (OSError, ValueError, LookupError, TypeError, InvalidSetting):
            continue  # no run with a truth, or one that is being written
    return None


def _read(run: Run) -> HeldTruth:
    summary = run.summary["truth"]
    values, errors = (run.data[name].values for name in ("truth", "truth_error"))
    return HeldTruth(values, errors, summary["executions"], summary["seconds"])
