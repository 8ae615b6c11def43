"""Contributions in Flower: a ClientApp answers with them, and a ServerApp asks for them.

In a federation without a server Flower's grid carries models between neighbours, as a ServerApp
sends them on. Clients train in messages of their own; then each gets its neighbourhood's models in
a message of type `query.contributions`, which `tell_contributions` has the ClientApp answer.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from trip_node.node.evaluator import LocalEvaluator
from trip_node.node.models import leaves, mixture
from trip_node.node.report import Report
from trip_node.node.weights import shares
from trip_node.settings.errors import InvalidSetting

ASKED = "query.contributions"
"""The type of Flower's messages that ask for contributions."""

ABOUT, REPORT, LCV = "trip_jax.about", "trip_jax.report", "trip_jax.lcv"
"""Records: members, weights and receivers of a model; the report; its contributions by member."""


def tell_contributions(
    app: ClientApp,
    evaluator: Callable[[Context, str], LocalEvaluator],
    hand_in: Callable[[Report], object] | None = None,
) -> None:
    """Have a ClientApp answer what a node's neighbours contributed to its model.

    Args:
        evaluator: of a node, from its context and its name, which is a member's; it evaluates
            models that are mappings from an ArrayRecord's keys to NumPy arrays.
        hand_in: None, or what is done with a report before it is answered, such as to sign and
            send it to a coordinator.
    """

    @app.query("contributions")
    def answer(message: Message, context: Context) -> Message:
        records = message.content.array_records
        about = message.content.config_records[ABOUT]
        members, client = _texts(about["members"]), str(about["client"])
        before, after = (
            {j: arrays(records[f"{when}.{j}"]) for j in members} for when in ("before", "after")
        )
        weights = dict(zip(members, _numbers(about["weights"]), strict=True))
        (round,) = _numbers([about["round"]])
        sent_to = _texts(about["sent_to"]) if "sent_to" in about else None
        report = evaluator(context, client).lcv(
            before, after, weights, round=int(round), sent_to=sent_to
        )
        if hand_in:
            hand_in(report)
        lcv = MetricRecord(dict(zip(report.members, report.lcv, strict=True)))
        reply = RecordDict({LCV: lcv, REPORT: ConfigRecord({"json": report.to_json()})})
        return Message(reply, reply_to=message)


def ask(
    grid: Grid,
    round: int,
    before: Mapping[int, ArrayRecord],
    after: Mapping[int, ArrayRecord],
    weights: Mapping[int, Mapping[int, float]],
    timeout: float = 3600,
) -> list[Report]:
    """The reports of a round, from all nodes at once; what a ServerApp does after training.

    Args:
        before, after: models by node id, as the nodes sent them.
        weights: by node id, the weights of its neighbourhood's members, itself included.

    Raises:
        InvalidSetting: a node answers with an error, or not in time.
    """
    messages = []
    for node, of_members in weights.items():
        about: dict[str, int | str | list[float] | list[str]] = {
            "client": str(node),
            "round": round,
            "members": [str(j) for j in of_members],
            "weights": [float(weight) for weight in of_members.values()],
            "sent_to": [str(other) for other, mixed in weights.items() if node in mixed],
        }
        content = RecordDict({ABOUT: ConfigRecord({**about})})
        for j in of_members:
            content[f"before.{j}"], content[f"after.{j}"] = before[j], after[j]
        messages.append(Message(content, node, ASKED, group_id=str(round)))
    replies = list(grid.send_and_receive(messages, timeout=timeout))
    for reply in replies:
        if reply.has_error():
            whose, why = reply.metadata.src_node_id, reply.error.reason
            raise InvalidSetting(f"Node {whose} told no contributions in round {round}: {why}.")
    if len(replies) < len(messages):
        raise InvalidSetting(
            f"{len(messages) - len(replies)} nodes told no contributions in round {round}: raise "
            "timeout, or leave them out of weights."
        )
    texts = (str(reply.content.config_records[REPORT]["json"]) for reply in replies)
    return [Report.from_json(text) for text in texts]


def mixed(models: Mapping[int, ArrayRecord], weights: Mapping[int, float]) -> ArrayRecord:
    """A node's next model: the mean of its neighbourhood's by weights (Eq. 2).

    The node is the first in `weights`; what can't be mixed is as it has it.
    """
    own = next(iter(weights))
    found = {j: leaves(arrays(models[j]), f"models[{j}]") for j in weights}
    mean = mixture(list(found.values()), list(shares(weights).values()), found[own])
    return ArrayRecord({name: Array(np.asarray(one, order="C")) for name, one in mean.items()})


def arrays(record: ArrayRecord) -> dict[str, np.ndarray]:
    """A model as the evaluator takes it."""
    return {name: one.numpy() for name, one in record.items()}


def scores_record(scores: Mapping[str, float]) -> MetricRecord:
    """Scores by client, as a strategy returns metrics."""
    return MetricRecord({f"score.{name}": float(score) for name, score in scores.items()})


def _texts(values: object) -> list[str]:
    assert isinstance(values, list)
    return [str(one) for one in values]


def _numbers(values: object) -> list[float]:
    assert isinstance(values, Iterable)
    return [float(one) for one in values]
