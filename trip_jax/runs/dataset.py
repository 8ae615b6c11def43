"""results.nc: a result as labelled arrays, each of which says what it is and in which unit."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from trip_jax.data.partition import Federation
from trip_jax.learning.evaluation import ACCURACY, LOSS, THIRD
from trip_jax.learning.utilities import columns
from trip_jax.protocol.methods.facts import GAIN, TRIP
from trip_jax.runs.agreement import arrays
from trip_jax.runs.labels import NAME
from trip_jax.runs.meaning import (
    NAT,
    NUMBER,
    about,
    about_method,
    method,
    of_models,
    reported_by,
    units,
)
from trip_jax.runs.standard_errors import standard_errors
from trip_jax.simulation.history import Result

if TYPE_CHECKING:
    import xarray

MAX_BY_CONTRIBUTOR = 10**7  # numbers of T n^2; more are to be had by `lcv_by_contributor` alone


def to_dataset(result: Result, federation: Federation, title: str) -> "xarray.Dataset":
    """A result as labelled arrays; rounds count from 1, slots follow `members`."""
    import xarray

    records, graphs = result.records, result.topology.graphs
    n_rounds, n = records.train_loss.shape
    utilities = np.asarray(records.utility)
    graph_of_round = np.array([result.topology.graph_of(t) for t in range(n_rounds)])
    of_client, of_round, of_pair = ("client",), ("round", "client"), ("client", "contributor")
    of_slot, of_graph = ("round", "client", "member"), ("graph", "client", "member")
    of_lcv = (*of_slot, "utility")
    told = result.contribution
    names = columns(told.utility)
    by = about_method(told.method)
    reporter = by.reports_as or told.method
    reports = about_method(reporter).unit
    unit, local = units(told.utility, by.unit), _local(reporter)
    of_report = units(told.utility, reports)
    per_utility = f"{NAT} for the loss, {NUMBER} for the others"
    of_each = per_utility if reports == GAIN else reports.symbol

    def named(dims: Any, values: Any, long_name: str, units: str = NUMBER) -> tuple[Any, ...]:
        return dims, np.asarray(values), {"long_name": long_name, "units": units}

    phi = {}
    if result.phi is not None:
        said = "contribution of the contributor to the client's final model"
        phi["phi"] = named(of_pair, result.phi, said, unit)
    data = xarray.Dataset(
        phi
        | {
            "score": named(
                of_client, result.scores, "mean contribution to all clients' final models", unit
            ),
            "liar": named(of_client, np.isin(np.arange(n), result.liars), "dishonest client"),
            "level": named(of_client, federation.levels, federation.level_name),
            "examples": named(of_client, federation.data.sizes, "training examples"),
            "initial_accuracy": named(
                (), result.initial[ACCURACY], "test accuracy of the model that all start from"
            ),
            "accuracy": named(
                of_round, utilities[..., ACCURACY], "test accuracy of the client's model"
            ),
            "loss": named(of_round, -utilities[..., LOSS], "test loss of the client's model", NAT),
            names[THIRD]: named(of_round, utilities[..., THIRD], of_models(names[THIRD])),
            "train_loss": named(
                of_round, records.train_loss, "mean training loss of the last local epoch", NAT
            ),
            "lcv": named(of_lcv, records.lcv, f"{local}, before any lie", of_each),
            "lcv_standard_error": named(
                of_lcv, records.lcv_error, "standard error of lcv, 0 where it is exact", of_each
            ),
            "reported": named(
                of_slot,
                records.reported,
                "local contribution that the coordinator received",
                of_report,
            ),
            "adopted": named(
                of_slot, records.adopted, "local contribution that entered Eq. 3", of_report
            ),
            "shares": named(
                of_slot, records.shares, "weight by which contributions are inherited (Eq. 3)"
            ),
            "filtered": named(of_slot, ~records.accepted, "pre-training model refused by C1"),
            "flagged": named(of_round, records.flagged, "report replaced by C2, or no numbers"),
            "distance": named(
                of_round, records.distance, "L2 distance of the report to C2's reference", of_report
            ),
            "unsent": named(of_round, ~records.arrived, "model left out, since it is not finite"),
            "members": named(of_graph, graphs.members, "client in the slot of a neighbourhood"),
            "mask": named(of_graph, graphs.mask, "whether the slot is taken"),
            "weights": named(of_graph, graphs.weights, "mixing weight of the slot (Eq. 2)"),
            "graph_of_round": named("round", graph_of_round, "graph that the round uses"),
        },
        coords={
            "round": named("round", np.arange(1, n_rounds + 1), "round, from 1"),
            "client": named("client", np.arange(n), "client, whose model or report it is"),
            "contributor": named("contributor", np.arange(n), "client that contributed"),
            "utility": named("utility", list(names), "what contributions are measured in"),
        },
        attrs={
            "title": title,
            "contribution_utility": told.utility,
            "contribution_method": told.method,
            "normalization": told.scaling,
            "semivalue": told.semivalue,
            "version": version("trip-jax"),
        }
        | by.attributes(),
    )
    if result.names:
        for dim, name in NAME.items():
            data.coords[name] = named(dim, np.array(result.names, object), f"name of the {dim}")
            del data.coords[name].attrs["units"]
    if (privacy := result.guarantee) is not None:
        data.attrs |= {"privacy_epsilon": privacy.epsilon, "privacy_delta": privacy.delta}
    if result.topology.present is not None:
        there = np.asarray(result.topology.present)[:n_rounds]
        data["present"] = named(of_round, there, "whether the client took part")
        rounds_there = there.sum(axis=0)
        rate = np.where(rounds_there > 0, result.scores / np.maximum(rounds_there, 1), np.nan)
        said = "score divided by the rounds in which the client took part, NaN if in none"
        data["score_per_round_present"] = named(of_client, rate, said, unit)
    if (wave := result.topology.wave) is not None:
        there = result.topology.present
        times = wave * np.arange(1, n_rounds + 1)
        data["time"] = named("round", times, "simulated time when the wave is over", "unit")
        trained = n_rounds if there is None else np.asarray(there)[:n_rounds].sum(axis=0)
        said = "local rounds that the client finished"
        data["local_rounds"] = named(of_client, np.broadcast_to(trained, n), said)
    if (lag := result.topology.lag(n_rounds)) is not None:
        sent = np.arange(1, n_rounds + 1)[:, None, None] - lag
        said = "wave in which the model that the slot mixes was sent"
        data["sent_in_round"] = named(of_slot, sent, said)
    if result.broadcast is not None:
        for name, what in arrays(result.broadcast).items():
            data[name] = named(*what)
    errors: Any = result.phi_error, result.score_error
    if errors[1] is None:
        errors = standard_errors(data)
    if errors:
        said = "standard error, from sampled coalitions, of"
        of_phi, of_score = errors
        if of_phi is not None:
            data["phi_error"] = named(of_pair, of_phi.astype(np.float32), f"{said} phi", unit)
        data["score_error"] = named(
            of_client, of_score.astype(np.float32), f"{said} the score", unit
        )
    if n_rounds * n * n <= MAX_BY_CONTRIBUTOR:
        data["lcv_by_contributor"] = lcv_by_contributor(data)
        data["lcv_by_contributor"].encoding = {"zlib": True, "complevel": 4}
    return data


def lcv_by_contributor(data: "xarray.Dataset", utility: str | None = None) -> "xarray.DataArray":
    """Local contributions of all rounds by the clients they speak of, [round, client, contributor].

    Args:
        data: results.nc of a run.
        utility: "accuracy", "loss" or what `columns` names third; that of the run if None.

    Returns:
        psi^(i,t)_j as it was before any lie; NaN where j sends nothing to i.
    """
    import xarray

    utility = utility or str(data.attrs["contribution_utility"])
    told_by = reported_by(data.attrs)
    unit = about(data.attrs).unit if told_by == method(data.attrs) else about_method(told_by).unit
    lcv = data["lcv"].sel(utility=utility).values
    graphs = data["graph_of_round"].values
    t, i, slot = np.nonzero(data["mask"].values[graphs])
    n_rounds, n, _ = lcv.shape
    values = np.full((n_rounds, n, n), np.nan, lcv.dtype)
    values[t, i, data["members"].values[graphs][t, i, slot]] = lcv[t, i, slot]
    return xarray.DataArray(
        values,
        dims=("round", "client", "contributor"),
        coords={name: data[name] for name in ("round", "client", "contributor")},
        name="lcv_by_contributor",
        attrs={
            "long_name": f"{_local(told_by)} in {utility}, before any lie",
            "units": units(utility, unit),
        },
    )


def _local(told_by: str) -> str:
    how = "Eq. 4" if told_by == TRIP else f"contribution.method={told_by}"
    return f"local contribution ({how})"
