"""Local contributions by the clients they speak of, in place of slots of a neighbourhood."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import xarray

MAX_NUMBERS = 10**7
"""The most numbers, T n^2, that results.nc holds of them; `lcv_by_contributor` computes any."""


def by_contributor(data: "xarray.Dataset", utility: str) -> Float[np.ndarray, "T n n"]:
    """The variable `lcv` of one utility with an axis of contributors in place of slots.

    Args:
        data: results.nc of a run.

    Returns:
        NaN where the contributor sends nothing to the client.
    """
    lcv = data["lcv"].sel(utility=utility).values
    graphs = data["graph_of_round"].values
    t, i, slot = np.nonzero(data["mask"].values[graphs])
    n_rounds, n, _ = lcv.shape
    values = np.full((n_rounds, n, n), np.nan, lcv.dtype)
    values[t, i, data["members"].values[graphs][t, i, slot]] = lcv[t, i, slot]
    return values
