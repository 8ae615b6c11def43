"""What clients are called in tables, pages and figures: their names, or else their numbers."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray

NAME = {"client": "client_name", "contributor": "contributor_name"}
"""The coordinate that holds the names along a dimension of clients, where they have any."""

SHORT = 14
"""Characters of a name in figures."""


def names_of(run: "xarray.Dataset") -> tuple[str, ...] | None:
    """The names of a run's clients, in their order; None: they have numbers alone.

    Args:
        run: results.nc.
    """
    if NAME["client"] not in run.coords:
        return None
    return tuple(map(str, run.coords[NAME["client"]].values))


def labels(run: "xarray.Dataset") -> np.ndarray:
    """What each client is called, as texts [n]."""
    return np.array(names_of(run) or run.client.values.astype(str), dtype=object)


def column(run: "xarray.Dataset") -> Any:
    """The clients for a table: names, or numbers as such."""
    return labels(run) if names_of(run) else run.client.values


def short(label: str) -> str:
    """A label that fits into a figure: of a long one its beginning and its end."""
    half = SHORT // 2
    return label if len(label) <= SHORT else f"{label[:half]}…{label[1 - half :]}"
