"""What contribution evaluation costs clients beside learning: models sent, evaluations, time."""

import math
from typing import Any

import numpy as np
from jaxtyping import Int

from trip_jax.node.report import SIGNATURE_BYTES, Report
from trip_jax.protocol.channels import BYTES
from trip_jax.protocol.methods.facts import Sizes
from trip_jax.protocol.methods.whole_run import sees_models
from trip_jax.results.result import Result, Timing
from trip_jax.topology import Topology


def _sent(topology: Topology, rounds: int) -> int | None:
    """The number of messages sent under schedule=events; None under other schedules.

    A client sends to all who mix anything of it in the run.
    """
    if topology.graphs.age is None:
        return None
    t, client, slot = np.nonzero(np.asarray(topology.graphs.mask))
    members, present = np.asarray(topology.graphs.members), np.asarray(topology.present)
    arcs = np.unique(topology.n_clients * client + members[t, client, slot])
    receiver, sender = np.divmod(arcs, topology.n_clients)
    receivers = np.bincount(sender[sender != receiver], minlength=topology.n_clients)
    return int(present[:rounds].sum(axis=0) @ receivers)


def costs(result: Result) -> dict[str, Any]:
    """Costs of a whole run, and of one client in one round.

    A client receives m - 1 post-training models to learn, and as many pre-training models to
    evaluate contributions. A round then takes it T_train + (m - 1 + 2^m) T_eval, where the paper,
    whose m leaves the client itself out, writes T_train + (m + 2^(m+1)) T_eval: m - 1 evaluations
    for C1, one for each coalition. With sampled coalitions 2^m is how many are drawn.

    Another method sends pre-training models only if it needs them, and evaluates as many models as
    it says. What a message takes is the channel's. One that looks at all models sends a client's
    update of each round to whoever concludes; what is evaluated when the run is over is not
    counted, nor are gradients.

    To a coordinator a report is a number for each member. Between clients it is what
    `trip_jax.node` writes and signs, each time that it is sent.
    """
    rounds, n = len(result.timings), len(result.models)
    to_learn, to_tell = result.message_bytes
    members = result.topology.masks(rounds).sum(axis=2)
    sent = _sent(result.topology, rounds)
    received = int((members - 1).sum()) if sent is None else sent
    method = result.contribution.build()
    before = received if method.sends_before else 0
    to_contribute = before + (n * rounds if sees_models(method) else 0)
    predictions = 0
    if method.keeps_updates and not sees_models(method):
        predictions = method.bytes_kept * math.prod(result.records.kept.shape)
        checked = result.federation.settings.defence.check().costs.amount("n_bytes")
        predictions += int(sum(checked.of(Sizes(int(m), n, 0)) for m in members.flat))
    timing = Timing.total(result.timings)
    train = timing.training / (n * rounds)
    evaluate = timing.evaluation / timing.coalitions
    evaluations = (before + timing.coalitions) / (n * rounds)
    return {
        "models_sent": {"learning": received, "contributions": to_contribute},
        "bytes_sent": {
            "learning": received * to_learn,
            "contributions": to_contribute * to_tell + predictions,
            "reports": _of_reports(result, members) if method.in_rounds.reports else 0,
        },
        "coalitions_evaluated": timing.coalitions,
        "client_and_round": {
            "seconds_training": train,
            "seconds_an_evaluation": evaluate,
            "evaluations": evaluations,  # by trip, the mean of m - 1 + 2^m
            "seconds": train + evaluations * evaluate,
            "times_training": 1 + evaluations * evaluate / train,
        },
    }


def _of_reports(result: Result, members: Int[np.ndarray, "T n"]) -> int:
    """The bytes of all reports that clients send to the coordinator, or to each other."""
    if result.broadcast is None:
        return int(members.sum()) * BYTES
    sizes = {m: packet_bytes(m, members.shape[1]) for m in np.unique(members).tolist()}
    return int((result.broadcast.messages * np.vectorize(sizes.__getitem__)(members)).sum())


def packet_bytes(m: int, n: int) -> int:
    """The bytes of a signed report on m members of n clients, as nodes send it to each other."""
    names = tuple(str(n - 1 - j) for j in range(m))
    digits = (0.0123456789012345,) * m
    report = Report(names[0], 10, names, (600.0,) * m, digits, (0.0,) * m, 2 ** min(m, 10))
    return SIGNATURE_BYTES + len(report.to_json())
