"""What clients reported in a finished run, in any utility and normalisation."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from trip_jax.protocol.reports import Reports

if TYPE_CHECKING:
    import xarray


def recorded_reports(run: "xarray.Dataset", utility: str, normalization: str) -> Reports:
    """The reports of all rounds as they are before anyone falsifies them, fields [T, A].

    Args:
        run: results.nc of a run, in whichever utility and normalisation.
        utility: "accuracy", "loss" or "probability".
        normalization: "paper" (Eq. 4 as printed) or "efficient" (divided by m).
    """
    graphs = run.graph_of_round.values
    mask = run["mask"].values[graphs]  # [T, n, M]
    lcv = run.lcv.sel(utility=utility).values
    if normalization != run.attrs["normalization"]:
        m = mask.sum(axis=-1, keepdims=True)
        lcv = lcv / m if normalization == "efficient" else lcv * m
    count = mask.sum(axis=(1, 2))
    client, slot = np.zeros((2, len(mask), count.max()), np.int32)
    for t, here in enumerate(mask):
        client[t, : count[t]], slot[t, : count[t]] = np.nonzero(here)
    rounds = np.arange(len(mask))[:, None]
    return Reports(
        client=jnp.asarray(client),
        member=jnp.asarray(run.members.values[graphs][rounds, client, slot], jnp.int32),
        weight=jnp.asarray(run.weights.values[graphs][rounds, client, slot]),
        lcv=jnp.asarray(lcv[rounds, client, slot], jnp.float32),
        real=jnp.asarray(np.arange(count.max()) < count[:, None]),
    )
