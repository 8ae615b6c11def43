# /// script
# requires-python = ">=3.10"
# dependencies = ["pfl[pytorch]==0.6.0", "torch==2.15.0"]
# ///
"""FedAvg by pfl's simulated backend, in one process. It takes a client's examples in the same order
in every epoch."""

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from experiments.frameworks.task import run_task
from experiments.frameworks.torch_task import TorchTask


class Learned(nn.Module):
    """A network as pfl wants it."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self._loss = network, nn.CrossEntropyLoss()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return self._loss(self.network(images), labels)

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Weighted]:
        # pfl always evaluates in its first round; nothing is computed, as in the others.
        return {"examples": Weighted(len(images), 1)}


class Rounds(TrainingProcessCallback):
    def __init__(self, task: TorchTask):
        self._task = task

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        self._task.end_counted_round()
        return False, Metrics()


def fedavg(task: TorchTask) -> None:
    shards = [PyTorchTensorDataset(task.shard(i), user_id=str(i)) for i in range(task.clients)]
    sampler = get_user_sampler("minimize_reuse", list(range(task.clients)))
    users = FederatedDataset(shards.__getitem__, sampler)
    learned = Learned(task.network())
    server = torch.optim.SGD(learned.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(task.rounds, task.rounds, task.clients, val_cohort_size=0),
        SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()]),
        PyTorchModel(learned, torch.optim.SGD, server),
        NNTrainHyperParams(
            local_batch_size=task.batch,
            local_num_epochs=task.epochs,
            local_learning_rate=task.learning_rate,
        ),
        callbacks=[Rounds(task)],
        send_metrics_to_platform=False,
    )
    task.answer_with(task.accuracy(learned.network), "pfl", "torch")


if __name__ == "__main__":
    run_task(fedavg, TorchTask)
