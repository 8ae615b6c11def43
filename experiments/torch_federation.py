"""The same federation as one would write it in PyTorch without this package, to be timed against.

Models are flat vectors, as everywhere here, so that mixing is as cheap as it can be. Training and
evaluation come as loops over models and, where all clients own equally much, by torch.func.vmap.
Everything is on PyTorch's GPU if it has one, in float32 as ours.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trip_jax.config import Config
from trip_jax.coordinator import Reports
from trip_jax.shapley import game_values
from trip_jax.simulation import Simulation

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.backends.cudnn.allow_tf32 = False


def wait() -> None:
    """For what a GPU has yet to do."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def tensor(values: object, dtype: torch.dtype | None = None) -> Tensor:
    """A copy on the device."""
    return torch.tensor(np.asarray(values), dtype=dtype, device=DEVICE)


def torch_network(config: Config, image_shape: Sequence[int], n_classes: int) -> nn.Sequential:
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


class TorchFederation:
    """A federation with a fixed graph.

    Attributes:
        start: [P] the initial model.
    """

    def __init__(self, config: Config, simulation: Simulation):
        data = simulation.data
        self.n, self.training = simulation.n, config.training
        self.images, self.test_images = map(_images, (data.images, data.test_images))
        self.labels = tensor(data.labels, torch.long)
        self.test_labels = tensor(data.test_labels, torch.long)
        self.owned = [
            tensor(row[:size])
            for row, size in zip(np.asarray(data.examples), np.asarray(data.sizes), strict=True)
        ]
        graph = simulation.topology.at(0)
        mask = np.asarray(graph.mask)
        self.members = [
            row[real] for row, real in zip(np.asarray(graph.members), mask, strict=True)
        ]
        self.shares = [
            tensor(row[real]) for row, real in zip(np.asarray(graph.shares), mask, strict=True)
        ]
        n_classes = int(self.labels.max()) + 1
        self.network = torch_network(config, data.images.shape[1:], n_classes).to(DEVICE)
        self.start = nn.utils.parameters_to_vector(self.network.parameters()).detach()
        self.loss = nn.CrossEntropyLoss()

    def train(self, theta: Tensor, client: int) -> Tensor:
        """Local training of one client, [P] -> [P]."""
        nn.utils.vector_to_parameters(theta.clone(), self.network.parameters())
        optimizer = torch.optim.SGD(
            self.network.parameters(), self.training.learning_rate, momentum=self.training.momentum
        )
        for _ in range(self.training.local_epochs):
            order = _shuffled(self.owned[client])
            for batch in order.split(self.training.batch_size):
                optimizer.zero_grad()
                self.loss(self.network(self.images[batch]), self.labels[batch]).backward()
                optimizer.step()
        return nn.utils.parameters_to_vector(self.network.parameters()).detach()

    def train_all(self, models: Tensor) -> Tensor:
        """[n, P] -> [n, P], one client after another."""
        return torch.stack([self.train(theta, i) for i, theta in enumerate(models)])

    def train_all_vmapped(self, models: Tensor, at_once: int) -> Tensor:
        """The same for clients of equal size, `at_once` of them in one vmap."""

        def loss(theta: Tensor, images: Tensor, labels: Tensor) -> Tensor:
            return self.loss(self._logits(theta, images), labels)

        gradient = vmap(grad(loss))
        trained = []
        for first in range(0, len(models), at_once):
            theta = models[first : first + at_once].clone()
            velocity = torch.zeros_like(theta)
            for _ in range(self.training.local_epochs):
                some = self.owned[first : first + at_once]
                orders = torch.stack([_shuffled(own) for own in some])
                for batch in orders.split(self.training.batch_size, dim=1):
                    slope = gradient(theta, self.images[batch], self.labels[batch])
                    velocity.mul_(self.training.momentum).add_(slope)
                    theta.sub_(velocity, alpha=self.training.learning_rate)
            trained.append(theta)
        return torch.cat(trained)

    @torch.no_grad()
    def evaluate(self, models: Tensor) -> Tensor:
        """Accuracy [R] of models [R, P], one after another."""
        accuracy = []
        for theta in models:
            nn.utils.vector_to_parameters(theta, self.network.parameters())
            right = self.network(self.test_images).argmax(dim=1) == self.test_labels
            accuracy.append(right.float().mean())
        return torch.stack(accuracy)

    @torch.no_grad()
    def evaluate_vmapped(self, models: Tensor, at_once: int) -> Tensor:
        """The same, `at_once` models in one vmap."""
        logits = vmap(self._logits, in_dims=(0, None))
        return torch.cat(
            [
                (logits(some, self.test_images).argmax(dim=2) == self.test_labels)
                .float()
                .mean(dim=1)
                for some in models.split(at_once)
            ]
        )

    def mixed(self, trained: Tensor) -> Tensor:
        """Everyone's average of its neighbourhood (Eq. 2)."""
        return torch.stack([w @ trained[j] for w, j in zip(self.shares, self.members, strict=True)])

    def round(self, models: Tensor) -> tuple[Tensor, list[np.ndarray]]:
        """The next models [n, P] and everyone's local contribution vector (Eq. 4)."""
        trained = self.train_all(models)
        contributions = []
        for w, members in zip(self.shares, self.members, strict=True):
            m = len(members)
            inside = tensor(np.arange(2**m)[:, None] >> np.arange(m) & 1)
            mixtures = (inside * w) @ trained[members] + ((1 - inside) * w) @ models[members]
            utilities = self.evaluate(mixtures).cpu().double().numpy()
            contributions.append(m * game_values(utilities))
        return self.mixed(trained), contributions

    def execute(self, inside: np.ndarray) -> Tensor:
        """Coalitions [K, n] bool, rounds, clients and minibatches in loops; nothing is evaluated.

        Returns:
            the final models [n, P] of the last coalition.
        """
        for coalition in inside:
            models = self.start.expand(self.n, -1)
            for _ in range(self.training.rounds):
                trained = [
                    self.train(theta, i) if coalition[i] else theta
                    for i, theta in enumerate(models)
                ]
                models = self.mixed(torch.stack(trained))
        return models

    def _logits(self, theta: Tensor, images: Tensor) -> Tensor:
        named = list(self.network.named_parameters())
        parts = theta.split([parameter.numel() for _, parameter in named])
        parameters = {
            name: part.view(parameter.shape)
            for (name, parameter), part in zip(named, parts, strict=True)
        }
        return functional_call(self.network, parameters, (images,))


def _images(images: object) -> Tensor:
    stacked = tensor(images, torch.float32).permute(0, 3, 1, 2).contiguous()
    return stacked / (255 if stacked.max() > 1 else 1)


def _shuffled(examples: Tensor) -> Tensor:
    return examples[torch.randperm(len(examples), device=DEVICE)]


class TorchCoordinator:
    """C2 with soft thresholds and Eq. 3 on whole arrays."""

    def __init__(self, reports: Reports, n: int):
        self.n = n
        self.client = tensor(reports.client, torch.long)
        self.member = tensor(reports.member, torch.long)
        weight = tensor(reports.weight)
        share = weight / self._sums(weight, self.client)[self.client]
        where = torch.stack([self.client, self.member])
        self.shares = torch.sparse_coo_tensor(
            where, share, (n, n), check_invariants=True
        ).coalesce()
        self.count = self._sums(torch.ones_like(weight), self.member)

    def _sums(self, values: Tensor, of: Tensor) -> Tensor:
        return torch.zeros(self.n, device=DEVICE).index_add_(0, of, values)

    def step(self, phi: Tensor, lcv: Tensor, penalty: float, distance: float) -> Tensor:
        """phi^(t+1) [n, n]."""
        limit = penalty / 2
        v, change = self._sums(lcv, self.member) / self.count, torch.inf
        while change > 1e-6 * limit:
            residual = (lcv - v[self.member]).clamp(-limit, limit)
            new = v + self._sums(residual, self.member) / self.count
            v, change = new, (new - v).abs().max().item()
        reference = v[self.member]
        far = self._sums((lcv - reference) ** 2, self.client).sqrt() > distance
        adopted = torch.where(far[self.client], reference, lcv)
        phi = self.shares @ phi
        phi[self.client, self.member] += adopted
        return phi
