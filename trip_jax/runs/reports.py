"""What clients reported in a finished run: in any utility and normalisation, or as a table."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.protocol.reports import Reports
from trip_jax.results.labels import column
from trip_jax.settings import require
from trip_jax.topology import Neighbourhoods, Topology

if TYPE_CHECKING:
    import pandas
    import xarray


def report_table(run: "xarray.Dataset") -> "pandas.DataFrame":
    """What the coordinator received in all rounds, as `trip-jax coordinate` reads it.

    Args:
        run: results.nc of a run.

    Returns:
        a line for each member of each neighbourhood, in columns round, client, member, weight and
        lcv; clients by their names where they have any.

    Raises:
        InvalidSetting: clients mixed models of earlier waves.
    """
    import pandas

    _require_rounds(run)
    graphs, called = run.graph_of_round.values, column(run)
    t, i, slot = np.nonzero(run["mask"].values[graphs])
    return pandas.DataFrame(
        {
            "round": run["round"].values[t],
            "client": called[i],
            "member": called[run.members.values[graphs][t, i, slot]],
            "weight": run["shares"].values[t, i, slot],
            "lcv": run["reported"].values[t, i, slot],
        }
    )


def recorded_reports(run: "xarray.Dataset", utility: str, normalization: str) -> Reports:
    """The reports of all rounds as they are before anyone falsifies them, fields [T, A].

    Args:
        run: results.nc of a run, in whichever utility and normalisation.
        utility: "accuracy", "loss" or what `columns` names third.
        normalization: "paper" (Eq. 4 as printed) or "efficient" (divided by m).

    Raises:
        InvalidSetting: clients mixed models of earlier waves.
    """
    _require_rounds(run)
    graphs = run.graph_of_round.values
    lcv = run.lcv.sel(utility=utility).values
    if normalization != run.attrs["normalization"]:
        m = run["mask"].values[graphs].sum(axis=-1, keepdims=True)
        lcv = lcv / m if normalization == "efficient" else lcv * m
    fields = (run[name].values for name in ("members", "mask", "weights"))
    topology = Topology(Neighbourhoods(*map(jnp.asarray, fields)))
    nearby, arcs = jax.tree.map(lambda field: field[graphs], (topology.graphs, topology.arcs()))
    weights = nearby.weights
    if "shares" in run:  # which follow models and contributions under some rules
        given = run["shares"].values
        if not np.allclose(given, weights / weights.sum(axis=-1, keepdims=True), atol=1e-6):
            weights = jnp.asarray(given, jnp.float32)
    return jax.vmap(Reports.of)(nearby, arcs, weights, jnp.asarray(lcv, jnp.float32))


def _require_rounds(run: "xarray.Dataset") -> None:
    require(
        "sent_in_round" not in run,
        "Reports of schedule=events can't be traced without the waves in which models were sent: "
        "take phi of results.nc, or set schedule=synchronous.",
    )
