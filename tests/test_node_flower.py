"""Flower's own clients, messages and records tell contributions, in a ring without a server."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="pip install trip-jax[flower]")

from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from tests import reference as ref
from trip_jax.deployment.tracing import after, nothing_yet
from trip_jax.node import LocalEvaluator, Report
from trip_jax.node.flower import ask, mixed, scores_record, tell_contributions
from trip_jax.protocol.defences import Defence
from trip_jax.settings.errors import InvalidSetting

NODES = [11, 22, 33, 44]
WEIGHTS = {
    node: {node: 2.0, NODES[k - 1]: 1.0, NODES[(k + 1) % 4]: 1.0} for k, node in enumerate(NODES)
}
TARGET = np.array([1.0, -1.0, 0.5])


class InProcess(Grid):
    """Carries messages, as bytes, to clients in this process."""

    def __init__(self, apps: dict[int, ClientApp]):
        self._apps = apps
        self._contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in apps}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return [self._answer(message) for message in messages]

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        try:
            return self._apps[node](message, self._contexts[node])
        except Exception as error:
            return Message(Error(0, str(error)), reply_to=message)

    set_run = run = create_message = get_node_ids = push_messages = pull_messages = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends messages, which Flower's processes know."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def utility(model: dict[str, np.ndarray]) -> float:
    return -float(((model["w"] - TARGET) ** 2).sum())


def client(told: list[Report]) -> ClientApp:
    """Takes a step towards a target of its own."""

    def evaluator(context: Context, name: str) -> LocalEvaluator:
        assert name == str(context.node_id)
        return LocalEvaluator(utility, name, normalization="efficient")

    app = ClientApp()
    tell_contributions(app, evaluator, told.append)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = message.content.array_records["model"]
        own = TARGET * (context.node_id % 3)
        stepped = 0.5 * (model["w"].numpy() + own)
        seen = np.asarray(model["seen"].numpy() + 1)
        record = ArrayRecord({"w": Array(stepped), "seen": Array(seen)})
        return Message(RecordDict({"model": record}), reply_to=message)

    return app


def test_a_ring_tells_who_contributed_what() -> None:
    told: list[Report] = []
    grid = InProcess({node: client(told) for node in NODES})
    start = ArrayRecord({"w": Array(np.zeros(3)), "seen": Array(np.array(0))})
    models, traced = dict.fromkeys(NODES, start), nothing_yet([str(node) for node in NODES])
    phi = np.zeros((4, 4))
    for t in (1, 2):
        sent = [Message(RecordDict({"model": models[j]}), j, "train") for j in NODES]
        replies = grid.send_and_receive(sent)
        trained = {r.metadata.src_node_id: r.content.array_records["model"] for r in replies}
        reports = ask(grid, t, models, trained, WEIGHTS)
        assert reports == told[-4:] and [report.client for report in reports] == list(
            map(str, NODES)
        )
        before = {j: [(models[j]["w"].numpy(), np.zeros(1))] for j in NODES}
        step = {j: [(trained[j]["w"].numpy(), np.zeros(1))] for j in NODES}
        lcvs: list[Any] = []
        for node in NODES:
            members = WEIGHTS[node]
            u = {
                s: utility({"w": ref.partial_model(s, step, before, members)[0][0]})
                for s in ref.coalitions(members)
            }
            lcvs.append(ref.shapley(u, list(members), "efficient"))
        expected = [{NODES.index(j): value for j, value in one.items()} for one in lcvs]
        shares = [{NODES.index(j): w for j, w in WEIGHTS[node].items()} for node in NODES]
        phi = ref.update_contributions(phi, expected, shares)
        traced = after(traced, t, reports, Defence())
        models = {node: mixed(trained, WEIGHTS[node]) for node in NODES}
        assert int(models[11]["seen"].numpy()) == t
    np.testing.assert_allclose(traced.phi, phi, rtol=1e-5, atol=1e-6)
    record = scores_record({str(row["client"]): float(str(row["score"])) for row in traced.scores})
    assert record["score.22"] == pytest.approx(phi.mean(axis=0)[1])


def test_a_client_that_fails_is_named() -> None:
    grid = InProcess({node: client([]) for node in NODES})
    good = ArrayRecord({"w": Array(np.zeros(3)), "seen": Array(np.array(0))})
    bad = ArrayRecord({"w": Array(np.zeros(4))})
    models = dict.fromkeys(NODES, good)
    with pytest.raises(InvalidSetting, match=r"Node 11 told no contributions in round 7: .*after"):
        ask(grid, 7, models, {**models, 22: bad}, WEIGHTS)
