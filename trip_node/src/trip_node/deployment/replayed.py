"""Contributions at a peer from the records of predictions that it knows, without a coordinator."""

from itertools import chain

import numpy as np

from trip_node.attribution.predictions import by_predictions
from trip_node.deployment.from_predictions import ReplaySettings, require_labels
from trip_node.deployment.recorded import Files, run_of_records
from trip_node.node.game import Game
from trip_node.node.gossip import PredictionGossip
from trip_node.node.tracing import Rows
from trip_node.settings import require


def replayed(gossip: PredictionGossip, replay: ReplaySettings) -> Rows:
    """phi after the last round, by the records that count (`by_predictions`).

    All rows become final together, once every client's record of each round has come and, with
    `check`, its closing record. A client that is away in a round sends a closing record for it. An
    equivocating client counts as away and as having sent its record; a proof that comes later
    changes rows, as for `tracing.trace`. Nodes with the same records find the same phi, but for the
    rounding of other machines.

    Args:
        replay: labels of the shared test set, the utility, the budget and `check`, the same at all
            nodes. Federations whose records hold no testimonies set `check=False`.

    Raises:
        InvalidSetting: labels of another test set, a budget that is too small, no record yet, less
            memory than a replay needs, or first logits on which no majority of those agrees that
            state them.
    """
    form, clients = gossip.federation.predictions, gossip.federation.clients
    assert form is not None
    require_labels(replay.labels, form)
    Game.of(len(clients), "antithetic", replay.budget, "shapley", np.random.default_rng(0))
    after = gossip.last_round + 1
    files: Files = {
        (round, name): (f"the record of client {name!r} on round {round}", record)
        for round in chain(gossip.rounds, [after])
        for name, record in gossip.records(round).items()
    }
    trained = any(not record.closes for _, record in files.values())
    require(trained, "No client's record of a round has come yet.")
    run = run_of_records(files, clients=clients, missing="zero", check=replay.check)
    given = run.recorded, replay.labels[run.places], replay.utility
    found = by_predictions(*given, budget=replay.budget)
    needed = chain(gossip.rounds, [after] * replay.check)
    whole = not any(gossip.missing(round) for round in needed)
    return Rows(tuple(run.names), found.phi, np.full(len(clients), whole), tuple(run.disputed))
