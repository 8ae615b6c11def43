"""Contributions at a peer from the records of predictions that it knows, without a coordinator."""

from itertools import chain

import numpy as np

from trip_node.attribution.predictions import by_predictions
from trip_node.deployment.from_predictions import ReplaySettings, require_labels
from trip_node.deployment.recorded import Files, run_of_records
from trip_node.node.gossip import PredictionGossip
from trip_node.node.tracing import Rows


def replayed(gossip: PredictionGossip, replay: ReplaySettings) -> Rows:
    """phi after the last round, by the records that count (`by_predictions`).

    A client without a record of a round, or that equivocated in it, counts as away: it kept its
    model. Each entry depends on all records, so that all rows are final or none: once no record is
    missing and, where receivers testify, no closing record is. A proof stands for the records that
    it holds. Nodes with the same records find the same phi, but for the rounding of other machines.

    Args:
        replay: labels of the shared test set, the utility and the budget, the same at all nodes.

    Raises:
        InvalidSetting: labels of another test set, or no record yet of the model from which all
            begin.
    """
    assert gossip.federation.predictions is not None
    require_labels(replay.labels, gossip.federation.predictions)
    after = gossip.last_round + 1
    files: Files = {
        (round, name): (f"the record of client {name!r} on round {round}", record)
        for round in chain(gossip.rounds, [after])
        for name, record in gossip.records(round).items()
    }
    clients = gossip.federation.clients
    run = run_of_records(files, clients=clients, missing="zero", check=replay.check)
    given = run.recorded, replay.labels[run.places], replay.utility
    found = by_predictions(*given, budget=replay.budget)
    testify = replay.check and any(record.testified for _, record in files.values())
    needed = chain(gossip.rounds, [after] * testify)
    whole = not any(gossip.missing(round) for round in needed)
    return Rows(tuple(run.names), found.phi, np.full(len(clients), whole), tuple(run.disputed))
