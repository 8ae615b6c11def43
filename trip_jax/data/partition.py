"""How training examples fall to clients, and how some clients' examples are spoilt."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from trip_jax._old_config import Distribution
from trip_jax.data.federation import ClientData
from trip_jax.data.sources import Dataset
from trip_jax.errors import InvalidSetting


@dataclass(frozen=True)
class Federation:
    """Clients' data on the device, and what distinguishes one client's data from another's."""

    data: ClientData
    levels: np.ndarray  # [n] what the distribution varies, see `level_name`
    level_name: str  # "examples", "sigma of pixel noise" or "fraction of wrong labels"


def distribute(
    dataset: Dataset, n_clients: int, distribution: Distribution = Distribution(), seed: int = 0
) -> Federation:
    """Divide the training set among clients; no example belongs to two of them.

    Raises:
        InvalidSetting: fewer examples than clients, or a client left without any.
    """
    n, labels = n_clients, dataset.train_labels
    if n > len(labels):
        raise InvalidSetting(
            f"n_clients={n} is more than the {len(labels)} training examples: lower n_clients or "
            "raise dataset.train_size."
        )
    rng = np.random.default_rng([seed, 4])
    levels = np.arange(n) if distribution.order == "sorted" else rng.permutation(n)
    if distribution.kind == "sizes":
        parts = _sizes(rng.permutation(len(labels)), levels)
    elif distribution.kind == "non_iid":
        parts = _non_iid(labels, dataset.n_classes, n, distribution.owned_share, rng)
    elif distribution.kind == "dirichlet":
        parts = _dirichlet(labels, dataset.n_classes, n, distribution.alpha, rng)
    else:
        each = len(labels) // n
        parts = list(rng.permutation(len(labels))[: n * each].reshape(n, each))
    sizes = np.array([len(part) for part in parts])
    if not sizes.all():
        raise InvalidSetting(
            f"distribution={distribution.kind} leaves client {int(np.argmin(sizes))} without data: "
            "lower n_clients, raise dataset.train_size"
            + (" or distribution.alpha." if distribution.kind == "dirichlet" else ".")
        )

    images, level, level_name = dataset.train_images, sizes.astype(float), "examples"
    scale = levels / max(n - 1, 1)
    if distribution.kind == "noisy_images":
        level, level_name = distribution.max_noise * scale, "sigma of pixel noise"
        images = _add_noise(images, parts, level, rng)
    if distribution.kind == "noisy_labels":
        level, level_name = distribution.max_label_noise * scale, "fraction of wrong labels"
        labels = _move_labels(labels, dataset.n_classes, parts, level, rng)

    examples = np.zeros((n, sizes.max()), np.int32)
    for i, part in enumerate(parts):
        examples[i, : len(part)] = part
    data = ClientData(
        images=jnp.asarray(images),
        labels=jnp.asarray(labels, jnp.int32),
        examples=jnp.asarray(examples),
        sizes=jnp.asarray(sizes, jnp.int32),
        test_images=jnp.asarray(dataset.test_images),
        test_labels=jnp.asarray(dataset.test_labels, jnp.int32),
    )
    return Federation(data, level, level_name)


def _sizes(order: np.ndarray, levels: np.ndarray) -> list[np.ndarray]:
    """Shares proportional to 2, 3, ..., n + 1."""
    shares = (levels + 2) / (levels + 2).sum()
    ends = np.floor(np.cumsum(shares) * len(order) + 1e-9).astype(int)
    return np.split(order, ends[:-1])


def _non_iid(
    labels: np.ndarray, n_classes: int, n: int, owned_share: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Client i owns classes 2i and 2i+1 (mod C), `owned_share` of its data each.

    The rest comes evenly from the other classes. Where a class runs short every client gets the
    largest equal size that is feasible.
    """
    by_class = [rng.permutation(np.flatnonzero(labels == c)) for c in range(n_classes)]
    available = np.array([len(rows) for rows in by_class])
    owned = np.zeros((n, n_classes), bool)
    for i in range(n):
        owned[i, [2 * i % n_classes, (2 * i + 1) % n_classes]] = True

    def counts(size: int) -> np.ndarray:
        """[n, C] examples of each class; what division leaves comes from the fullest classes."""
        table = np.where(owned, int(owned_share * size), 0)
        rest = size - table.sum(axis=1)
        others = np.maximum((~owned).sum(axis=1), 1)
        table += np.where(owned, 0, (rest // others)[:, None])
        for i in range(n):
            spare = np.where(owned[i], -np.inf, available - table.sum(axis=0))
            table[i, np.argsort(-spare, kind="stable")[: rest[i] % others[i]]] += 1
        return table

    shares = np.where(owned, owned_share, (1 - owned_share * 2) / max(n_classes - 2, 1))
    size = min(
        len(labels) // n, int((available / np.maximum(shares.sum(axis=0), 1e-12)).min() + 1e-9)
    )
    while size > 0 and (counts(size).sum(axis=0) > available).any():
        size -= 1
    table = counts(size)
    ends = np.cumsum(table, axis=0)
    return [
        np.concatenate(
            [
                rows[end - count : end]
                for rows, end, count in zip(by_class, ends[i], table[i], strict=True)
            ]
        )
        for i in range(n)
    ]


def _dirichlet(
    labels: np.ndarray, n_classes: int, n: int, alpha: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Every class is divided by shares drawn from Dirichlet(alpha)."""
    parts: list[list[np.ndarray]] = [[] for _ in range(n)]
    for c in range(n_classes):
        rows = rng.permutation(np.flatnonzero(labels == c))
        ends = np.floor(np.cumsum(rng.dirichlet(np.full(n, alpha))) * len(rows)).astype(int)
        for part, share in zip(parts, np.split(rows, ends[:-1]), strict=True):
            part.append(share)
    return [np.concatenate(part) for part in parts]


def _add_noise(
    images: np.ndarray, parts: list[np.ndarray], sigma: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Gaussian noise of a client's sigma on its pixels in [0, 1], clipped; float32."""
    scale = 255 if images.dtype == np.uint8 else 1
    noisy = images.astype(np.float32) / np.float32(scale)
    for part, s in zip(parts, sigma, strict=True):
        if s > 0:
            noise = rng.standard_normal(noisy[part].shape, np.float32)
            noisy[part] = np.clip(noisy[part] + np.float32(s) * noise, 0, 1)
    return noisy


def _move_labels(
    labels: np.ndarray,
    n_classes: int,
    parts: list[np.ndarray],
    fraction: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """A fraction of each client's labels moved to another class, all others equally likely."""
    moved = labels.copy()
    for part, share in zip(parts, fraction, strict=True):
        wrong = rng.choice(part, round(share * len(part)), replace=False)
        moved[wrong] = (labels[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    return moved
