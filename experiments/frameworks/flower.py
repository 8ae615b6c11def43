# /// script
# requires-python = ">=3.11"
# dependencies = ["flwr[simulation]==1.42.0", "torch==2.15.0"]
# ///
"""FedAvg by Flower's simulation runtime: clients are messages to Ray's actors, one a core."""

import os
import sys

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from experiments.frameworks.task import run_task
from experiments.frameworks.torch_task import Network, TorchTask, torch_task


def client_app(path: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        task = torch_task(path)
        images, labels = task.shard(context.node_config["partition-id"])
        network, loss = task.network(), nn.CrossEntropyLoss()
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(network.parameters(), lr=task.learning_rate)
        before = Network.samples, Network.steps
        for _ in range(task.epochs):
            for batch in torch.randperm(len(labels)).split(task.batch):
                optimizer.zero_grad()
                loss(network(images[batch]), labels[batch]).backward()
                optimizer.step()
        done = {"samples": Network.samples - before[0], "steps": Network.steps - before[1]}
        metrics = MetricRecord({"num-examples": len(labels)} | done)
        content = RecordDict({"arrays": ArrayRecord(network.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def fedavg(task: TorchTask) -> None:
    done, server = {"samples": 0, "steps": 0}, ServerApp()

    def add(replies: list[RecordDict], _: str) -> MetricRecord:
        for name in done:
            done[name] += sum(reply["metrics"][name] for reply in replies)
        return MetricRecord(done)

    def end_round(t: int, _: ArrayRecord) -> None:
        if t:
            task.end_round(**done)

    @server.main()
    def serve(grid: Grid, _: Context) -> None:
        network = task.network()
        strategy = FedAvg(fraction_evaluate=0.0, train_metrics_aggr_fn=add)
        start = ArrayRecord(network.state_dict())
        found = strategy.start(grid, start, num_rounds=task.rounds, evaluate_fn=end_round)
        network.load_state_dict(found.arrays.to_torch_state_dict())
        task.answer_with(task.accuracy(network), "flwr", "ray", "torch")

    backend: dict[str, dict[str, float]] = {
        "init_args": {"num_cpus": torch.get_num_threads()},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, client_app(sys.argv[1]), task.clients, backend_config=backend)


if __name__ == "__main__":
    run_task(fedavg, TorchTask)
