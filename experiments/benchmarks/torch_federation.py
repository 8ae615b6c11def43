"""The same federation as one would write it in PyTorch without this package, to be timed against.

Models are flat vectors, as everywhere here, so that mixing is as cheap as it can be. Training and
evaluation are loops over models or, where all clients own equally much, a torch.func.vmap of some
at once. Everything is on PyTorch's GPU if it has one, in float32 as ours.
"""

from collections.abc import Callable, Sequence

import jax
import numpy as np

from experiments.benchmarks.ceiling import PRODUCTS, SIZES, fastest
from trip_jax.config import Adversary, Aggregation, Config, Contribution, Defence
from trip_jax.protocol.reports import Reports
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley import game_values
from trip_jax.simulation import Simulation

try:
    import torch
    from torch import Tensor, nn
    from torch.func import functional_call, grad, vmap
except ImportError as error:
    raise InvalidSetting('PyTorch is missing: pip install -e ".[bench]".') from error

LOOP, VMAP = "PyTorch, loop", "PyTorch, vmap"
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
AT_ONCE = 8 if DEVICE.type == "cpu" else 128
"""Models in one vmap; on a CPU more were slower, on a GPU it was not tried."""

torch.backends.cudnn.allow_tf32 = False

wait: Callable[[], None] = torch.cuda.synchronize if DEVICE.type == "cuda" else lambda: None
"""Returns when PyTorch has done what it was told."""


def setup(simulation: Simulation) -> str:
    """What runs on what, for titles."""
    kind = jax.devices()[0].device_kind
    ours = f"{simulation.learner.mesh.size} {kind} device(s), jax {jax.__version__}"
    return f"{ours}, PyTorch {torch.__version__} on {DEVICE}, {torch.get_num_threads()} threads"


def tensor(values: object, dtype: torch.dtype | None = None) -> Tensor:
    """A copy of an array as a tensor on the device."""
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


def matmul_ceiling() -> float:
    """Operations a second of large products in float32."""
    size = SIZES["cpu" if DEVICE.type == "cpu" else "accelerator"]
    a = torch.randn(size, size, device=DEVICE) / size**0.5

    def products() -> None:
        b = a
        for _ in range(PRODUCTS):
            b = a @ b
        wait()

    return fastest(products, size)


class TorchFederation:
    """A federation with a fixed graph.

    Args:
        at_once: models in one vmap; None for loops.

    Attributes:
        models: [n, P] the initial model of every client.
    """

    def __init__(self, config: Config, simulation: Simulation, at_once: int | None = None):
        data, self.at_once = simulation.data, at_once
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
        start = nn.utils.parameters_to_vector(self.network.parameters()).detach()
        assert len(start) == len(simulation.learner.model.theta)
        self.models = start.expand(self.n, -1)
        self.loss = nn.CrossEntropyLoss()

    def train(self, models: Tensor, clients: Sequence[int]) -> Tensor:
        """Local training of some clients, models [c, P] -> [c, P]."""
        if not len(clients):
            return models
        if self.at_once:
            parts = zip(models.split(self.at_once), _split(clients, self.at_once), strict=True)
            return torch.cat([self._train_vmapped(*part) for part in parts])
        return torch.stack([self._train(*one) for one in zip(models, clients, strict=True)])

    def _train(self, theta: Tensor, client: int) -> Tensor:
        nn.utils.vector_to_parameters(theta.clone(), self.network.parameters())
        optimizer = torch.optim.SGD(
            self.network.parameters(), self.training.learning_rate, momentum=self.training.momentum
        )
        for _ in range(self.training.local_epochs):
            order = shuffled(self.owned[client])
            for batch in order.split(self.training.batch_size):
                optimizer.zero_grad()
                self.loss(self.network(self.images[batch]), self.labels[batch]).backward()
                optimizer.step()
        return nn.utils.parameters_to_vector(self.network.parameters()).detach()

    def _train_vmapped(self, models: Tensor, clients: Sequence[int]) -> Tensor:
        def loss(theta: Tensor, images: Tensor, labels: Tensor) -> Tensor:
            return self.loss(self._logits(theta, images), labels)

        gradient = vmap(grad(loss))
        theta, velocity = models.clone(), torch.zeros_like(models)
        for _ in range(self.training.local_epochs):
            orders = torch.stack([shuffled(self.owned[client]) for client in clients])
            for batch in orders.split(self.training.batch_size, dim=1):
                slope = gradient(theta, self.images[batch], self.labels[batch])
                velocity.mul_(self.training.momentum).add_(slope)
                theta.sub_(velocity, alpha=self.training.learning_rate)
        return theta

    @torch.no_grad()
    def evaluate(self, models: Tensor) -> Tensor:
        """Accuracy [R] of models [R, P]."""
        if self.at_once:
            logits = vmap(self._logits, in_dims=(0, None))
            parts = [logits(some, self.test_images) for some in models.split(self.at_once)]
            return torch.cat([self._right(part).mean(dim=1) for part in parts])
        accuracy = []
        for theta in models:
            nn.utils.vector_to_parameters(theta, self.network.parameters())
            accuracy.append(self._right(self.network(self.test_images)).mean())
        return torch.stack(accuracy)

    def _right(self, logits: Tensor) -> Tensor:
        return (logits.argmax(dim=-1) == self.test_labels).float()

    def mixed(self, trained: Tensor) -> Tensor:
        """Everyone's average of its neighbourhood (Eq. 2)."""
        return torch.stack([w @ trained[j] for w, j in zip(self.shares, self.members, strict=True)])

    def round(self, models: Tensor) -> tuple[Tensor, list[np.ndarray]]:
        """The next models [n, P] and everyone's local contribution vector (Eq. 4)."""
        trained = self.train(models, range(self.n))
        utilities = self.coalitions(models, trained)
        contributions = [
            len(members) * game_values(found)
            for members, found in zip(self.members, utilities, strict=True)
        ]
        return self.mixed(trained), contributions

    def coalitions(self, models: Tensor, trained: Tensor) -> list[np.ndarray]:
        """Accuracy [2^m] of everyone's mixtures of models before and after training (Eq. 5)."""
        found = []
        for w, members in zip(self.shares, self.members, strict=True):
            m = len(members)
            inside = tensor(np.arange(2**m)[:, None] >> np.arange(m) & 1)
            mixtures = (inside * w) @ trained[members] + ((1 - inside) * w) @ models[members]
            found.append(self.evaluate(mixtures).cpu().double().numpy())
        return found

    def execute(self, inside: np.ndarray) -> Tensor:
        """Accuracy [K, n] of the final models of coalitions [K, n] bool, one after another."""
        accuracy = []
        for coalition in inside:
            models, clients = self.models, np.flatnonzero(coalition).tolist()
            for _ in range(self.training.rounds):
                trained = models.clone()
                trained[clients] = self.train(models[clients], clients)
                models = self.mixed(trained)
            accuracy.append(self.evaluate(models))
        return torch.stack(accuracy)

    def _logits(self, theta: Tensor, images: Tensor) -> Tensor:
        named = list(self.network.named_parameters())
        parts = theta.split([parameter.numel() for _, parameter in named])
        parameters = {
            name: part.view(parameter.shape)
            for (name, parameter), part in zip(named, parts, strict=True)
        }
        return functional_call(self.network, parameters, (images,))


def refuse_what_pytorch_lacks(config: Config, simulation: Simulation) -> None:
    """Raise InvalidSetting where ours would not do the same work."""
    asked = config.adversary, config.defence, config.contribution, config.precision
    if (
        asked != (Adversary(), Defence(), Contribution(), "float32")
        or config.aggregation != Aggregation()
        or not config.training.is_plain
        or simulation.schedule.work.sampled.size
    ):
        raise InvalidSetting(
            "PyTorch's federation is honest and undefended, learns by SGD over epochs and weighted "
            "means, evaluates all coalitions of a neighbourhood and computes in float32: leave out "
            "adversary, defence, contribution, precision, aggregation and other ways to train, and "
            "take a graph of ten members at most a neighbourhood."
        )


def torch_federations(config: Config, simulation: Simulation) -> dict[str, TorchFederation]:
    """The federation in PyTorch: by loops and, where clients own equally much, by vmap."""
    federations = {LOOP: TorchFederation(config, simulation)}
    if len(np.unique(simulation.data.sizes)) == 1:
        federations[VMAP] = TorchFederation(config, simulation, AT_ONCE)
    return federations


def _images(images: object) -> Tensor:
    stacked = tensor(images, torch.float32).permute(0, 3, 1, 2).contiguous()
    return stacked / (255 if stacked.max() > 1 else 1)


def _split(values: Sequence[int], size: int) -> list[Sequence[int]]:
    return [values[first : first + size] for first in range(0, len(values), size)]


def shuffled(examples: Tensor) -> Tensor:
    """A random order of a client's examples for one epoch."""
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
        others = (self.client != self.member).float()  # what one says of oneself counts for nothing
        alone = self._sums(others, self.member) == 0
        self.heard = torch.where(alone[self.member], torch.ones_like(others), others)
        self.count = self._sums(self.heard, self.member)

    def _sums(self, values: Tensor, of: Tensor) -> Tensor:
        return torch.zeros(self.n, device=DEVICE).index_add_(0, of, values)

    def step(self, phi: Tensor, lcv: Tensor, defence: Defence) -> Tensor:
        """One round of the coordinator, Eq. 3: phi^(t+1) [n, n]."""
        assert defence.penalty and defence.distance
        limit = defence.penalty / 2
        v, change = self._sums(self.heard * lcv, self.member) / self.count, torch.inf
        while change > 1e-6 * limit:
            residual = self.heard * (lcv - v[self.member]).clamp(-limit, limit)
            new = v + self._sums(residual, self.member) / self.count
            v, change = new, (new - v).abs().max().item()
        reference = v[self.member]
        far = self._sums((lcv - reference) ** 2, self.client).sqrt() > defence.distance
        adopted = torch.where(far[self.client], reference, lcv)
        phi = self.shares @ phi
        phi[self.client, self.member] += adopted
        return phi
