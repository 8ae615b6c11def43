"""The variables of results.nc: what each is, and where a run has it.

A quantity that every round leaves is a field of `Record` and an `OfRecord` here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trip_jax.learning.evaluation import ACCURACY, LOSS, THIRD
from trip_jax.learning.quantity import NAT, NUMBER
from trip_jax.protocol.broadcast import Outcome
from trip_jax.results.labels import NAME
from trip_jax.results.view import ResultView

OF_CLIENT, OF_ROUND, OF_PAIR = ("client",), ("round", "client"), ("client", "contributor")
OF_SLOT, OF_GRAPH = ("round", "client", "member"), ("graph", "client", "member")
OF_LCV = (*OF_SLOT, "utility")

COMPRESSED = {"zlib": True, "complevel": 4}


@dataclass(frozen=True)
class Variable:
    """The declaration of one array of results.nc.

    Attributes:
        name: in results.nc. Words in braces, here as below, are `ResultView.words` of the run.
        dims: names of its axes.
        long_name: what the variable is, in plain words.
        of: its values in a run; None where the run has none.
        units: its unit, NUMBER for a number without one, None for texts.
        encoding: how files hold it, as xarray names it.
    """

    name: str
    dims: tuple[str, ...]
    long_name: str
    of: Callable[[Any], Any]
    units: str | None = NUMBER
    encoding: Mapping[str, Any] = field(default_factory=dict)

    def values(self, view: ResultView) -> Any:
        """The values of the variable in a run; None where the run has none."""
        return self.of(view)

    def named(self, values: Any, words: dict[str, str]) -> tuple[Any, ...]:
        """What xarray makes an array of: axes, values, attributes and encoding."""
        said = {"long_name": self.long_name, "units": self.units}
        attributes = {key: text.format_map(words) for key, text in said.items() if text}
        return self.dims, np.asarray(values), attributes, dict(self.encoding)


class OfRecord(Variable):
    """A variable that every round leaves: `of` takes the record of one round, or of all rounds."""

    def values(self, view: ResultView) -> Any:
        return self.of(view.result.records)


class OfTruth(Variable):
    """A variable of runs that are held against the truth: `of` takes a `HeldTruth`."""

    def values(self, view: ResultView) -> None:
        """None: `runs/held_truth.py` adds the truth when the run is over."""


def _of_outcome(of: Callable[[Outcome], np.ndarray]) -> Callable[[ResultView], np.ndarray | None]:
    """What a broadcast of reports left, where there was one."""
    return lambda view: None if view.broadcast is None else of(view.broadcast)


def _of_honest(of: Callable[[Outcome], np.ndarray]) -> Callable[[ResultView], np.ndarray | None]:
    """What honest clients found after a broadcast of reports; NaN for the others."""

    def everyone(outcome: Outcome) -> np.ndarray:
        values = np.full(len(outcome.honest), np.nan, np.float32)
        values[outcome.honest] = of(outcome)
        return values

    return _of_outcome(everyone)


_BY_THEIRS = "phi by the reports that the client has"

COORDINATES = (
    Variable("round", ("round",), "round, from 1", ResultView.rounds),
    Variable("client", OF_CLIENT, "client, whose model or report it is", ResultView.clients),
    Variable("contributor", ("contributor",), "client that contributed", ResultView.clients),
    Variable("utility", ("utility",), "what contributions are measured in", ResultView.utilities),
    *(
        Variable(it, (dim,), f"name of the {dim}", ResultView.names, units=None)
        for dim, it in NAME.items()
    ),
)

VARIABLES = (
    Variable(
        "phi",
        OF_PAIR,
        "contribution of the contributor to the client's final model",
        lambda view: view.result.phi,
        "{unit}",
    ),
    Variable(
        "score",
        OF_CLIENT,
        "mean contribution to all clients' final models",
        lambda view: view.result.scores,
        "{unit}",
    ),
    Variable("liar", OF_CLIENT, "dishonest client", ResultView.liars),
    Variable("level", OF_CLIENT, "{level}", lambda view: view.federation.levels),
    Variable("examples", OF_CLIENT, "training examples", lambda view: view.federation.data.sizes),
    Variable(
        "initial_accuracy",
        (),
        "{first utility} of the model that all start from",
        lambda view: view.result.initial[ACCURACY],
    ),
    OfRecord(
        "accuracy",
        OF_ROUND,
        "{first utility} of the client's model",
        lambda record: record.utility[..., ACCURACY],
    ),
    OfRecord(
        "loss",
        OF_ROUND,
        "test loss of the client's model",
        lambda record: -record.utility[..., LOSS],
        "{unit of loss}",
    ),
    OfRecord(
        "{third utility}",
        OF_ROUND,
        "{third utility of models}",
        lambda record: record.utility[..., THIRD],
    ),
    OfRecord(
        "train_loss",
        OF_ROUND,
        "mean training loss of the last local epoch",
        lambda record: record.train_loss,
        NAT,
    ),
    OfRecord("lcv", OF_LCV, "{lcv}, before any lie", lambda record: record.lcv, "{unit of lcv}"),
    OfRecord(
        "lcv_standard_error",
        OF_LCV,
        "standard error of lcv, 0 where it is exact",
        lambda record: record.lcv_standard_error,
        "{unit of lcv}",
    ),
    OfRecord(
        "reported",
        OF_SLOT,
        "local contribution that the coordinator received",
        lambda record: record.reported,
        "{unit of reports}",
    ),
    OfRecord(
        "adopted",
        OF_SLOT,
        "local contribution that entered Eq. 3",
        lambda record: record.adopted,
        "{unit of reports}",
    ),
    OfRecord(
        "shares",
        OF_SLOT,
        "weight by which contributions are inherited (Eq. 3)",
        lambda record: record.shares,
    ),
    OfRecord(
        "filtered", OF_SLOT, "pre-training model refused by C1", lambda record: record.filtered
    ),
    OfRecord(
        "flagged", OF_ROUND, "report replaced by C2, or no numbers", lambda record: record.flagged
    ),
    OfRecord(
        "distance",
        OF_ROUND,
        "L2 distance of the report to C2's reference",
        lambda record: record.distance,
        "{unit of reports}",
    ),
    OfRecord(
        "unsent", OF_ROUND, "model left out, since it is not finite", lambda record: record.unsent
    ),
    Variable(
        "members",
        OF_GRAPH,
        "client in the slot of a neighbourhood",
        lambda view: view.graphs.members,
    ),
    Variable("mask", OF_GRAPH, "whether the slot is taken", lambda view: view.graphs.mask),
    Variable(
        "weights", OF_GRAPH, "mixing weight of the slot (Eq. 2)", lambda view: view.graphs.weights
    ),
    Variable("graph_of_round", ("round",), "graph that the round uses", ResultView.graph_of_round),
    Variable("present", OF_ROUND, "whether the client took part", lambda view: view.present),
    Variable(
        "score_per_round_present",
        OF_CLIENT,
        "score divided by the rounds in which the client took part, NaN if in none",
        ResultView.score_per_round_present,
        "{unit}",
    ),
    Variable("time", ("round",), "simulated time when the wave is over", ResultView.time, "unit"),
    Variable(
        "local_rounds", OF_CLIENT, "local rounds that the client finished", ResultView.local_rounds
    ),
    Variable(
        "sent_in_round",
        OF_SLOT,
        "wave in which the model that the slot mixes was sent",
        ResultView.sent_in_round,
    ),
    Variable(
        "misbehaves",
        OF_CLIENT,
        "liar in the broadcast of reports",
        _of_outcome(lambda outcome: ~outcome.honest),
    ),
    Variable(
        "reach",
        OF_ROUND,
        "share of honest clients that the report reached",
        _of_outcome(lambda outcome: outcome.reach),
    ),
    Variable(
        "report_messages",
        OF_ROUND,
        "times that the report was sent",
        _of_outcome(lambda outcome: outcome.messages),
    ),
    Variable(
        "forged_messages",
        OF_ROUND,
        "forged reports in its name, refused",
        _of_outcome(lambda outcome: outcome.forged),
    ),
    Variable(
        "agrees",
        OF_CLIENT,
        f"whether {_BY_THEIRS} is the commonest; NaN: misbehaves",
        _of_honest(lambda outcome: outcome.agreeing),
    ),
    Variable(
        "complete",
        OF_CLIENT,
        f"whether {_BY_THEIRS} is that of all; NaN: misbehaves",
        _of_honest(lambda outcome: outcome.right),
    ),
    Variable(
        "rows_known",
        OF_CLIENT,
        f"share of {_BY_THEIRS} with its causal past; NaN: misbehaves",
        _of_honest(lambda outcome: outcome.known),
    ),
    Variable(
        "phi_error",
        OF_PAIR,
        "standard error, from sampled coalitions, of phi",
        ResultView.phi_error,
        "{unit}",
    ),
    Variable(
        "score_error",
        OF_CLIENT,
        "standard error, from sampled coalitions, of the score",
        ResultView.score_error,
        "{unit}",
    ),
    Variable(
        "lcv_by_contributor",
        ("round", *OF_PAIR),
        "{lcv} in {utility}, before any lie",
        ResultView.lcv_by_contributor,
        "{unit of reports}",
        COMPRESSED,
    ),
    OfTruth(
        "truth",
        OF_PAIR,
        "contribution to the client's final model by the Shapley value of the whole run",
        lambda held: held.values,
        "{unit of gain}",
    ),
    OfTruth(
        "truth_error",
        OF_PAIR,
        "standard error of truth, 0 where all coalitions were executed",
        lambda held: held.errors,
        "{unit of gain}",
    ),
    OfTruth(
        "true_score",
        OF_CLIENT,
        "mean of truth over all clients' final models",
        lambda held: held.values.mean(axis=0),
        "{unit of gain}",
    ),
)
"""The variables of results.nc in its order; standard errors are computed from those before them."""

DECLARED = {one.name: one for one in (*COORDINATES, *VARIABLES)}
