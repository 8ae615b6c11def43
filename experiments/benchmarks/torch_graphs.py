"""PyTorch's federation by vmap, and by a loop whose every step is one CUDA graph.

A graph is launched by one call of the host, which else calls each kernel: a step of a small network
waits for these calls. On a CPU the same steps run without graphs.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.benchmarks.roofline_cases import Case, Sizes, federation
from experiments.benchmarks.torch_federation import (
    AT_ONCE,
    DEVICE,
    VMAP,
    TorchFederation,
    shuffled,
)
from trip_jax.config import Config, ModelConfig
from trip_jax.simulation import Simulation

GRAPHS = "PyTorch, CUDA graphs"


class GraphedFederation(TorchFederation):
    """The loop over models, with a graph for a step of training and one for the evaluation.

    All minibatches have to be whole.
    """

    def __init__(self, config: Config, simulation: Simulation):
        super().__init__(config, simulation)
        self._parameters = list(self.network.parameters())
        rows = torch.arange(self.training.batch_size, device=DEVICE)
        self._images, self._labels = self.images[rows].clone(), self.labels[rows].clone()
        rate, momentum = self.training.learning_rate, self.training.momentum
        self._optimizer = torch.optim.SGD(self._parameters, rate, momentum=momentum)
        self._step = graphed(self._train_on_batch)
        self._accuracy = torch.zeros((), device=DEVICE)
        self._evaluate = graphed(torch.no_grad()(self._evaluate_network))

    def _train_on_batch(self) -> None:
        self._optimizer.zero_grad(set_to_none=False)
        self.loss(self.network(self._images), self._labels).backward()
        self._optimizer.step()

    def _evaluate_network(self) -> None:
        self._accuracy.copy_(self._right(self.network(self.test_images)).mean())

    @torch.no_grad()
    def _load(self, theta: Tensor) -> None:
        """Write a model where graphs read it."""
        sizes = [parameter.numel() for parameter in self._parameters]
        for parameter, part in zip(self._parameters, theta.split(sizes), strict=True):
            parameter.copy_(part.view(parameter.shape))

    def _train(self, theta: Tensor, client: int) -> Tensor:
        self._load(theta)
        for state in self._optimizer.state.values():
            state["momentum_buffer"].zero_()
        for _ in range(self.training.local_epochs):
            for batch in shuffled(self.owned[client]).split(self.training.batch_size):
                self._images.copy_(self.images[batch])
                self._labels.copy_(self.labels[batch])
                self._step()
        return torch.nn.utils.parameters_to_vector(self._parameters).detach()

    def evaluate(self, models: Tensor) -> Tensor:
        """Accuracy [R] of models [R, P]."""
        accuracy = []
        for theta in models:
            self._load(theta)
            self._evaluate()
            accuracy.append(self._accuracy.clone())
        return torch.stack(accuracy)


def graphed(step: Callable[[], None]) -> Callable[[], Any]:
    """A training step captured as a CUDA graph, after warm-up steps on another stream."""
    if DEVICE.type != "cuda":
        step()  # so that the optimiser has what it keeps, as after a graph is made
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@contextmanager
def computing(precision: str) -> Iterator[None]:
    """PyTorch's matrix products and convolutions in a precision of the setting `precision`."""
    cudnn, before = torch.backends.cudnn, torch.get_float32_matmul_precision()
    tf32, cudnn.allow_tf32 = cudnn.allow_tf32, precision != "float32"
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    bfloat16 = precision == "bfloat16"
    try:
        # Casts that one graph made and kept would not be made again in the next.
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=bfloat16, cache_enabled=False):
            yield
    finally:
        cudnn.allow_tf32 = tf32
        torch.set_float32_matmul_precision(before)


def ways(case: Case, sizes: Sizes) -> Mapping[str, Callable[[], Any]]:
    """The work of a case by PyTorch, to be called while `computing` in its precision."""
    simulation = federation(case.n, sizes)
    model = ModelConfig("cnn", hidden=(sizes.hidden,), channels=sizes.channels)
    config = Config(model=model, training=simulation.training)
    federations = {
        VMAP: TorchFederation(config, simulation, min(case.n, AT_ONCE)),
        GRAPHS: GraphedFederation(config, simulation),
    }
    return {who: partial(_work, one, case) for who, one in federations.items()}


def _work(federation: TorchFederation, case: Case) -> Any:
    if case.work == "training":
        return federation.train(federation.models, range(case.n))
    return federation.coalitions(federation.models, 1.01 * federation.models)
