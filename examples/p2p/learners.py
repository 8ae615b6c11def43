"""What a node trains: a model as a vector of float32, which is what it sends."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Vector = np.ndarray
HIDDEN = 32
RATE, BATCH = 0.1, 16


class Learner(Protocol):
    """A model of one architecture on a node's own examples; all nodes start from one `start`."""

    def start(self) -> Vector: ...

    def train(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """The model after one epoch of SGD on the client's examples."""

    def loss(self, theta: Vector) -> float:
        """Mean cross-entropy on the test set."""


class SoftmaxRegression:
    """Softmax regression in NumPy; theta holds the biases [10], then the weights [64, 10]."""

    def __init__(self, data: dict[str, np.ndarray]):
        self._data = data

    def start(self) -> Vector:
        return np.zeros(65 * 10, np.float32)

    def train(self, theta: Vector, rng: np.random.Generator) -> Vector:
        x, y = self._data["images"], self._data["labels"]
        for batch in batches(len(y), rng):
            wrong = np.exp(self._log_probabilities(theta, x[batch]))
            wrong[np.arange(len(batch)), y[batch]] -= 1
            gradient = np.concatenate([wrong.sum(axis=0), (x[batch].T @ wrong).ravel()])
            theta = theta - np.float32(RATE / len(batch)) * gradient
        return theta

    def loss(self, theta: Vector) -> float:
        told = self._log_probabilities(theta, self._data["test_images"])
        y = self._data["test_labels"]
        return -float(told[np.arange(len(y)), y].mean())

    def _log_probabilities(self, theta: Vector, x: np.ndarray) -> np.ndarray:
        logits = x @ theta[10:].reshape(-1, 10) + theta[:10]
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


class TorchNetwork:
    """A PyTorch module; theta holds its parameters one after another."""

    def __init__(self, data: dict[str, np.ndarray]):
        import torch

        torch.set_num_threads(1)  # nodes share the cores
        torch.manual_seed(0)
        self._torch = torch
        self._network = torch.nn.Sequential(
            torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10)
        )
        self._data = {name: torch.from_numpy(values) for name, values in data.items()}

    def start(self) -> Vector:
        return self._vector()

    def train(self, theta: Vector, rng: np.random.Generator) -> Vector:
        self._load(theta)
        x, y = self._data["images"], self._data["labels"]
        for batch in batches(len(y), rng):
            self._network.zero_grad()
            self._cross_entropy(x[batch], y[batch]).backward()
            with self._torch.no_grad():  # torch.optim brings a compiler, five seconds a process
                for parameter in self._network.parameters():
                    assert parameter.grad is not None  # for the type checker
                    parameter.sub_(RATE * parameter.grad)
        return self._vector()

    def loss(self, theta: Vector) -> float:
        self._load(theta)
        with self._torch.no_grad():
            return float(self._cross_entropy(self._data["test_images"], self._data["test_labels"]))

    def _cross_entropy(self, x: Any, y: Any) -> Any:
        return self._torch.nn.functional.cross_entropy(self._network(x), y)

    def _load(self, theta: Vector) -> None:
        vector = self._torch.from_numpy(np.array(theta))
        self._torch.nn.utils.vector_to_parameters(vector, self._network.parameters())

    def _vector(self) -> Vector:
        parameters = self._network.parameters()
        vector = self._torch.nn.utils.parameters_to_vector(parameters)
        return np.array(vector.detach().numpy())


LEARNERS: dict[str, Callable[[dict[str, np.ndarray]], Learner]] = {
    "numpy": SoftmaxRegression,
    "torch": TorchNetwork,
}


def batches(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The minibatches of one epoch, in random order."""
    return np.array_split(rng.permutation(size), max(1, size // BATCH))
