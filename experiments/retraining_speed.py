"""Seconds to re-execute coalitions: ours, one after the other, and a plain PyTorch loop.

    python -m experiments.retraining_speed [scale=cpu] [dataset=fashion_mnist] [model=cnn]
        [pairs=4] [SETTING=VALUE ...]

Executes coalitions of the iid cell of Table I and their complements three ways, one after the other
in this process: in chunks as they are, one coalition at a time, and by a loop over coalitions,
rounds, clients and minibatches in PyTorch, which is spared the evaluation. A pair of a coalition
and its complement is always the same work. Ours is timed from the end of its first chunk, which
compiles, over as many further whole chunks as hold `pairs`. Needs the extra `bench`.
"""

import time
from collections.abc import Callable, Sequence
from timeit import timeit

import jax
import numpy as np
import torch
from torch import nn

from experiments.command_line import run_as_command
from experiments.kept import compose_config
from experiments.request import parse
from trip_jax.config import Config
from trip_jax.errors import InvalidSetting
from trip_jax.execution import Executor
from trip_jax.prepare import prepare
from trip_jax.retraining import decentralised_process
from trip_jax.simulation import Simulation


def seconds_a_pair(simulation: Simulation, n_pairs: int, memory: float | None = None) -> float:
    """Of re-execution, over `n_pairs` pairs rounded up to whole chunks."""
    executor = Executor(simulation, decentralised_process(simulation.n), memory)
    executor.most_at_once = executor.at_once(2**simulation.n)  # as in a whole cell
    warm_up = max(1, executor.most_at_once // 2)  # pairs
    timed = -(-n_pairs // warm_up) * warm_up  # whole chunks
    done: list[tuple[int, float]] = []
    executor.execute(
        simulation,
        coalitions(simulation.n, warm_up + timed),
        on_chunk=lambda utilities: done.append((len(utilities), time.perf_counter())),
    )
    began = next(end for executed, end in done if executed == 2 * warm_up)
    return (done[-1][1] - began) / timed


def coalitions(n: int, n_pairs: int) -> np.ndarray:
    """Drawn coalitions, each followed by its complement, [2 n_pairs, n] bool."""
    inside = np.random.default_rng(0).random((n_pairs, n)) < 0.5
    return np.stack([inside, ~inside], axis=1).reshape(-1, n)


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
    """What one would write without this package: coalitions, rounds and clients in loops."""
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


def retraining_speed(arguments: Sequence[str]) -> None:
    """Run the three side by side and print a table."""
    pairs = 4
    others = []
    for argument in arguments:
        if argument.startswith("pairs="):
            value = argument.removeprefix("pairs=")
            if not value.isdecimal() or int(value) < 1:
                raise InvalidSetting(f"pairs must be a number of at least 1, not {value!r}.")
            pairs = int(value)
        else:
            others.append(argument)
    request = parse(others)
    dataset, model = request.datasets[0], request.models[0]
    choices = [f"dataset={dataset}", f"model={model}", *request.settings(dataset, model)]
    config = compose_config("vs_shapley", choices)
    simulation, _ = prepare(config)
    execute = torch_loop(config, simulation, coalitions(simulation.n, pairs))
    seconds = {
        "trip_jax, coalitions together": seconds_a_pair(simulation, pairs),
        "trip_jax, one after another": seconds_a_pair(simulation, pairs, memory=1.0),
        f"PyTorch {torch.__version__}, loops": timeit(execute, number=1) / pairs,
    }
    n_pairs = 2 ** (simulation.n - 1)
    samples = int(simulation.data.sizes.sum()) * config.training.rounds
    samples *= config.training.local_epochs
    print(f"{dataset}, {model}: {samples:,} samples a pair of coalitions, {n_pairs} pairs a cell")
    print(f"{jax.devices()[0].device_kind}; PyTorch with {torch.get_num_threads()} threads")
    print("| | seconds a pair | samples/s | seconds a cell | times as long |")
    print("|---|---|---|---|---|")
    fastest = seconds["trip_jax, coalitions together"]
    for name, spent in seconds.items():
        cell = f"{spent * n_pairs:,.0f}"
        print(f"| {name} | {spent:.2f} | {samples / spent:,.0f} | {cell} | {spent / fastest:.2f} |")


if __name__ == "__main__":
    run_as_command(retraining_speed)
