"""A run held against the truth: the whole run, executed again for coalitions of its clients.

This follows a run that is over and whole on the disk. After an interruption the same command goes
on with the executions.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from trip_jax import __version__
from trip_jax.config import Config
from trip_jax.learning.utilities import columns
from trip_jax.protocol.methods.facts import GAIN
from trip_jax.results.meaning import unit_symbol
from trip_jax.results.variables import VARIABLES, OfTruth
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.directory import write_results
from trip_jax.runs.executions import executed
from trip_jax.runs.provenance import json_hash
from trip_jax.runs.reading import Run, load_run
from trip_jax.runs.resume import depends_on
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.simulation import Simulation
from trip_jax.truth.metrics import cosine_distance, spearman
from trip_jax.truth.settings import Executable

if TYPE_CHECKING:
    import xarray

TRUTH_FOLDERS = FINISHED, CHUNK = "truth", "truth.chunk"
"""The folders in which finished executions and the running chunk are kept."""

WITHOUT_INFLUENCE = ("contribution.", "defence.", "protocol.", "keep_phi")
"""Settings, or how their names begin, that change what is told of a run and not what it learns."""


@dataclass(frozen=True)
class HeldTruth:
    """The truth that a run is held against."""

    values: Float[np.ndarray, "n n"]  # contribution of client j to client i's final model
    errors: Float[np.ndarray, "n n"]
    executions: int
    seconds: float

    def added_to(self, data: "xarray.Dataset") -> "xarray.Dataset":
        """results.nc with the variables that `OfTruth` declares."""
        unit = unit_symbol(str(data.attrs["contribution_utility"]), GAIN)
        declared = [one for one in VARIABLES if isinstance(one, OfTruth)]
        words = {"unit of gain": unit}
        return data.assign({one.name: one.named(one.of(self), words) for one in declared})


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
        utility = config.contribution.utility
        at = columns(utility).index(utility)
        held = HeldTruth(
            truth.values[..., at], truth.standard_error[..., at], len(truth.inside), seconds
        )
    data = held.added_to(run.data)
    summary = run.summary | {"truth": settings | _compared(data) | _kept_of(held) | {"key": key}}
    if "config" in summary:
        summary["config"] |= {"truth": asdict(config.truth)}
    write_results(folder, data, summary, config.drawing)
    finished.remove()
    return summary


def in_words(summary: Mapping[str, Any]) -> str:
    """How far a run is from its truth, in a sentence; "" where it is held against none.

    Args:
        summary: summary.json.
    """
    truth = summary.get("truth")
    if truth is None:
        return ""
    if truth["distance"] is None:
        return (
            "The cosine distance to the truth is not defined: a client's contributions are all 0."
        )
    return (
        f"The cosine distance to the truth ({truth['executions']:,} executions) is "
        f"{truth['distance']:.4f}; that of equal parts for all clients is "
        f"{truth['distance_of_equal_parts']:.4f}."
    )


def _compared(data: "xarray.Dataset") -> dict[str, float | None]:
    """How far contributions are from the truth; None where a vector has no direction."""
    phi, truth = data.phi.values, data.truth.values
    found = {
        "distance": cosine_distance(phi, truth).mean(),
        "distance_of_equal_parts": cosine_distance(np.ones_like(truth), truth).mean(),
        "rank_correlation": spearman(data.score.values, data.true_score.values),
    }
    return {name: float(one) if np.isfinite(one) else None for name, one in found.items()}


def _kept_of(held: HeldTruth) -> dict[str, Any]:
    return {"executions": held.executions, "seconds": held.seconds}


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
