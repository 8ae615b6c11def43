# /// script
# requires-python = ">=3.12"
# dependencies = ["blazefl==2.0.3", "torch==2.15.0", "numpy==2.4.6", "tqdm==4.70.1"]
# ///
"""FedAvg by BlazeFL's own classes for it, one client after another in one process. They import
NumPy and tqdm, which BlazeFL does not ask for."""

from enum import StrEnum

from blazefl.contrib import FedAvgBaseClientTrainer, FedAvgBaseServerHandler, FedAvgPartitionType
from torch import Generator, nn
from torch.utils.data import DataLoader, TensorDataset

from experiments.frameworks.task import run_task
from experiments.frameworks.torch_task import TorchTask


class Name(StrEnum):
    CNN = "cnn"


class Parts:
    """Networks and data as BlazeFL asks for them."""

    def __init__(self, task: TorchTask):
        self._task = task
        self._shards = [TensorDataset(*task.shard(i)) for i in range(task.clients)]

    def select_model(self, _: Name) -> nn.Module:
        return self._task.network()

    def get_dataloader(
        self, type_: FedAvgPartitionType, cid: int, batch_size: int, generator: Generator
    ) -> DataLoader:
        return DataLoader(self._shards[cid], batch_size, shuffle=True, generator=generator)


def fedavg(task: TorchTask) -> None:
    parts = Parts(task)
    shared = {
        "model_selector": parts,
        "model_name": Name.CNN,
        "dataset": parts,
        "device": "cpu",
        "num_clients": task.clients,
        "batch_size": task.batch,
        "seed": task.seed,
    }
    server = FedAvgBaseServerHandler(global_round=task.rounds, sample_ratio=1.0, **shared)
    trainer = FedAvgBaseClientTrainer(epochs=task.epochs, lr=task.learning_rate, **shared)
    while not server.if_stop():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        task.end_counted_round()
    task.answer_with(task.accuracy(server.model), "blazefl", "torch")


if __name__ == "__main__":
    run_task(fedavg, TorchTask)
