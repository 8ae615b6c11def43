"""Seconds to re-execute coalitions: ours, one after the other, and a plain PyTorch loop.

    python -m experiments.retraining_speed [scale=cpu] [dataset=fashion_mnist] [model=cnn]
        [pairs=4] [SETTING=VALUE ...]

Executes `pairs` pairs of coalitions of the iid cell of Table I, all three ways one after another in
this process, compilation apart. Every pair is the same work, so that 2^(n-1) of them, the whole
cell, take 2^(n-1) / pairs times as long. Needs the extra `bench`.
"""

import tempfile
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np
import torch
from torch import nn

from experiments.cells import compose_config
from experiments.command_line import parse, run_as_command
from trip_jax.config import Config
from trip_jax.prepare import prepare
from trip_jax.retraining import decentralised_process, reexecute
from trip_jax.simulation import Simulation


def ours(
    simulation: Simulation, inside: np.ndarray, memory: float | None = None
) -> Callable[[], object]:
    """Re-execution as it is; a first call fills the compilation cache."""
    process = decentralised_process(simulation.n)
    return lambda: reexecute(simulation, process, inside, memory=memory)


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
        for coalition in np.stack([inside, ~inside], axis=1).reshape(-1, simulation.n):
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
            pairs = int(argument.removeprefix("pairs="))
        else:
            others.append(argument)
    cache = tempfile.TemporaryDirectory()
    jax.config.update("jax_compilation_cache_dir", cache.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    request = parse(others)
    dataset, model = request.datasets[0], request.models[0]
    choices = [f"dataset={dataset}", f"model={model}"]
    config = compose_config([*choices, *request.overrides_of_scale(model), *request.overrides])
    simulation, _ = prepare(config)
    n = simulation.n
    rng = np.random.default_rng(0)
    inside = rng.random((pairs, n)) < 0.5
    ways = {
        "trip_jax, coalitions together": ours(simulation, inside),
        "trip_jax, one pair after another": ours(simulation, inside, memory=1.0),
        f"PyTorch {torch.__version__}, loops": torch_loop(config, simulation, inside),
    }
    samples = pairs * int(simulation.data.sizes.sum()) * config.training.rounds
    samples *= config.training.local_epochs
    print(f"{dataset}, {model}, {samples:,} samples in {pairs} of {2 ** (n - 1)} pairs")
    seconds = {}
    for name, execute in ways.items():
        if name.startswith("trip_jax"):
            execute()
        began = time.perf_counter()
        execute()
        seconds[name] = time.perf_counter() - began
    fastest = seconds["trip_jax, coalitions together"]
    print("| | seconds | samples/s | whole cell | times as long |")
    print("|---|---|---|---|---|")
    for name, spent in seconds.items():
        whole = spent * 2 ** (n - 1) / pairs
        print(
            f"| {name} | {spent:.1f} | {samples / spent:,.0f} | {whole:,.0f} s "
            f"| {spent / fastest:.2f} |"
        )
    print(f"on {jax.devices()[0].device_kind}, {torch.get_num_threads()} threads for PyTorch")


if __name__ == "__main__":
    run_as_command(retraining_speed)
