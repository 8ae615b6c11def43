# /// script
# requires-python = ">=3.10"
# dependencies = ["fluke-fl==0.8.1", "torch==2.15.0"]
# ///
"""FedAvg and gossip by fluke, in one process. In its gossip a client that got no model in a round
does not train, and everyone sends to one neighbour at random."""

from typing import Any

import networkx as nx
import numpy as np
from fluke import DDict, FlukeENV
from fluke.algorithms.decentralized import GossipDFL, Topology
from fluke.algorithms.fedavg import FedAVG
from fluke.data import FastDataLoader
from fluke.utils import FederationObserver

from experiments.frameworks.task import run_task
from experiments.frameworks.torch_task import TorchTask


class Split:
    """Stands where fluke has a splitter: the data are split already."""

    def __init__(self, task: TorchTask):
        self._task = task

    def assign(self, n_clients: int, batch: int) -> Any:
        kind = {"num_labels": self._task.classes, "batch_size": batch, "shuffle": True}
        shards = map(self._task.shard, range(n_clients))
        loaders = [FastDataLoader(*shard, skip_singleton=False, **kind) for shard in shards]
        return (loaders, [None] * n_clients), None


class Rounds(FederationObserver):
    def __init__(self, task: TorchTask):
        self._task = task

    def end_round(self, round: int) -> None:
        self._task.end_counted_round()


def federate(task: TorchTask) -> None:
    environment = FlukeENV()
    environment.set_seed(task.seed)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    gossip = task.protocol == "gossip"
    client = {"batch_size": task.batch, "local_epochs": task.epochs, "loss": "CrossEntropyLoss"}
    client |= {"optimizer": DDict(name="SGD", lr=task.learning_rate), "scheduler": None}
    client |= {"policy": "aggregate"} if gossip else {}
    settings = DDict(client=DDict(client), server=DDict(weighted=True), model=task.network())
    if gossip:
        ring = Topology(nx.cycle_graph(task.clients))
        federation = GossipDFL(task.clients, Split(task), settings, topology=ring)
        federation.set_callbacks(Rounds(task))
        federation.run(task.rounds)
        models = [one.model for one in federation.clients]
    else:
        federation = FedAVG(task.clients, Split(task), settings)
        federation.set_callbacks(Rounds(task))
        federation.run(task.rounds, 1.0)
        models = [federation.server.model]
    accuracy = float(np.mean([task.accuracy(model) for model in models]))
    task.answer_with(accuracy, "fluke-fl", "torch")


if __name__ == "__main__":
    run_task(federate, TorchTask)
