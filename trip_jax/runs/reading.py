"""Reads run directories; one with a damaged file is refused by the name of that file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trip_jax.results.dataset import SCHEMA, lcv_by_contributor
from trip_jax.results.labels import NAME, names_of
from trip_jax.results.meaning import first_of_models
from trip_jax.results.plots import Plots
from trip_jax.results.propagation import rows_of_phi
from trip_jax.results.scores import client_table, html_of, in_a_few_lines
from trip_jax.runs.foreign import load_netcdf, read_json, require_schema
from trip_jax.settings.declared import path_of
from trip_jax.settings.errors import InvalidSetting

if TYPE_CHECKING:
    import pandas
    import xarray

    from trip_jax.runs.pages.inline import InlinePage

SUMMARY = ("final_accuracy", "scores", "liars")
ARRAYS = ("score", "liar", "examples", "accuracy", "members", "mask")
"""What the files of a run of any version hold at least."""


@dataclass(frozen=True, repr=False)
class Run:
    """The settings, results and summary of a run, read from its directory."""

    summary: dict[str, Any]
    rounds: "pandas.DataFrame"  # rounds.csv
    data: "xarray.Dataset"  # results.nc

    def __repr__(self) -> str:
        run = self.data
        liars = np.flatnonzero(run.liar.values).tolist()
        measured = first_of_models(run.attrs.get("contribution_utility", "accuracy"))
        found = run.accuracy.values, run.score.values, liars, self.names
        out = in_a_few_lines(*found, measured)
        return f"Run({run.title!r})\n{out}"

    def _repr_html_(self) -> str:
        return html_of(self.data)

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each client: score, share, examples and more, see `client_table`."""
        return client_table(self.data)

    def report(self) -> "InlinePage":
        """The page `report.html` of the run, which a notebook shows in a frame.

        Raises:
            InvalidSetting: an older version wrote the run, without what the report shows.
        """
        from trip_jax.runs.pages.inline import InlinePage
        from trip_jax.runs.pages.run_page import run_page

        return InlinePage(run_page(self.data, self.summary))

    @property
    def plot(self) -> Plots:
        """The figures of the run: `run.plot.scores()`, `.phi()`, `.accuracy()`, `.graph()`."""
        return Plots(self.data)

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the n clients are called, in their order; None: 0..n-1."""
        return names_of(self.data)

    def rows_of_phi(self, clients: Sequence[int | str]) -> np.ndarray:
        """[R, n] contributions to the final models of some clients, whether or not phi was kept."""
        return rows_of_phi(self.data, clients)

    def lcv_by_contributor(self, utility: str | None = None) -> "xarray.DataArray":
        """Local contributions psi^(i,t)_j of all rounds, [round, client, contributor].

        See `trip_jax.results.dataset.lcv_by_contributor`.
        """
        return lcv_by_contributor(self.data, utility)


def is_over(folder: Path) -> bool:
    """Whether a directory holds a run that will not go on: one that finished or diverged.

    Raises:
        InvalidSetting: its summary.json is damaged.
    """
    path = folder / "summary.json"
    try:
        return bool(read_json(path)["status"] != "interrupted")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidSetting(f"{path} is damaged: remove it, and the run goes on.") from error


def load_run(path: str | os.PathLike[str]) -> Run:
    """Read the results of a run from its directory.

    Where clients have names, `data.sel(client_name="mayo")` takes them.

    Raises:
        InvalidSetting: the directory holds no run, or one that was cut off, is damaged or was
            written by a later version, or a results.nc whose data are in other files. One that
            stopped because a model diverged, or was interrupted after a round, is read; its summary
            has the status "stopped" or "interrupted".
    """
    import pandas

    folder = existing(path)
    if not (folder / "summary.json").is_file():
        raise InvalidSetting(
            f"{folder} holds no finished run: a run directory has a summary.json once it is over."
        )

    def load(path: Path) -> "xarray.Dataset":
        data = load_netcdf(path)
        require_schema(path, data.attrs.get("schema", SCHEMA), SCHEMA)
        for name in set(NAME.values()) & set(data.coords):
            data = data.set_xindex(name)  # so that .sel takes names
        return data

    data = _read(folder / "results.nc", load, ARRAYS)

    def read_rounds(path: Path) -> "pandas.DataFrame":
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        rounds = pandas.read_csv(path)
        if len(rounds) < data.sizes["round"]:  # a run that goes on has more
            raise LookupError("rounds")
        return rounds

    return Run(
        summary=_read(folder / "summary.json", read_json, SUMMARY),
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
        names: the names of variables or fields that the file must hold.
    """
    try:
        held = read(path)
        if missing := [name for name in names if name not in held]:
            raise LookupError(missing)
        return held
    except InvalidSetting:
        raise
    except (OSError, ValueError, LookupError, RuntimeError, TypeError) as error:  # HDF5's are many
        number = getattr(error, "errno", None)
        reason = f"can't be read ({os.strerror(number)})" if number else "is damaged"
        raise InvalidSetting(f"{path} {reason}: repeat the run.") from error
