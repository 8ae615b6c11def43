"""Re-execution as one would write it in PyTorch without this package, to be timed against."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from trip_jax.config import Config
from trip_jax.simulation import Simulation


def torch_network(config: Config, image_shape: Sequence[int], n_classes: int) -> nn.Module:
    """The configured network; images [B, C, H, W]."""
    height, width, channels = image_shape
    layers: list[nn.Module] = []
    if config.model.kind == "cnn":
        for features in config.model.channels:
            layers += [nn.Conv2d(channels, features, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels, height, width = features, height // 2, width // 2
    layers.append(nn.Flatten())
    inputs = channels * height * width
    for hidden in config.model.hidden:
        layers += [nn.Linear(inputs, hidden), nn.ReLU()]
        inputs = hidden
    return nn.Sequential(*layers, nn.Linear(inputs, n_classes))


def torch_loop(config: Config, simulation: Simulation, inside: np.ndarray) -> Callable[[], object]:
    """Coalitions, rounds, clients and minibatches in loops; nothing is evaluated."""
    data, training = simulation.data, config.training
    images = torch.tensor(np.asarray(data.images), dtype=torch.float32)
    images = images.permute(0, 3, 1, 2).contiguous() / (255 if images.max() > 1 else 1)
    labels = torch.tensor(np.asarray(data.labels), dtype=torch.long)
    owned = [
        torch.tensor(row[:size])
        for row, size in zip(np.asarray(data.examples), np.asarray(data.sizes), strict=True)
    ]
    graph = simulation.topology.at(0)
    shares = torch.tensor(np.asarray(graph.shares))
    members = np.asarray(graph.members)
    network = torch_network(config, data.images.shape[1:], int(labels.max()) + 1)
    start = nn.utils.parameters_to_vector(network.parameters()).detach()
    loss = nn.CrossEntropyLoss()

    def train(theta: torch.Tensor, client: int) -> torch.Tensor:
        nn.utils.vector_to_parameters(theta.clone(), network.parameters())
        optimizer = torch.optim.SGD(
            network.parameters(), training.learning_rate, momentum=training.momentum
        )
        for _ in range(training.local_epochs):
            order = owned[client][torch.randperm(len(owned[client]))]
            for batch in order.split(training.batch_size):
                optimizer.zero_grad()
                loss(network(images[batch]), labels[batch]).backward()
                optimizer.step()
        return nn.utils.parameters_to_vector(network.parameters()).detach()

    def execute() -> None:
        for coalition in inside:
            models = [start] * simulation.n
            for _ in range(training.rounds):
                trained = [
                    train(models[i], i) if coalition[i] else models[i] for i in range(simulation.n)
                ]
                models = [
                    sum(w * trained[j] for w, j in zip(shares[i], members[i], strict=True))
                    for i in range(simulation.n)
                ]

    return execute
