"""How training examples fall to clients, and how some clients' examples are spoilt."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.random import Generator

from trip_jax.data.dataset import TESTS, Dataset
from trip_jax.data.doubts import without
from trip_jax.data.examples import in_unit_interval
from trip_jax.data.federation import ClientData, padded
from trip_jax.data.own_tests import TestExamples, by_names, held_out
from trip_jax.settings import (
    PURE,
    Kinds,
    above_zero,
    at_least,
    choice,
    count,
    fraction,
    measured,
    require,
)
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types, instance, integer, named, seed_of
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import chosen_from, read_by_kind
from trip_jax.settings.names import as_names
from trip_jax.settings.plurals import counted

MOST_DRAWS = 1000
"""Draws of Dirichlet shares before giving up: seconds for a thousand clients."""


@dataclass(frozen=True)
class Division:
    """Which examples each of n clients owns, and what was done to them."""

    parts: list[np.ndarray]  # [n] lists of rows of the training set, no row twice
    spoilt: Dataset | None = None  # the data set instead
    levels: np.ndarray | None = None  # [n] of what the distribution varies; None: examples
    level_name: str = "examples"
    remedy: str = "raise dataset.train_size"  # where clients are left without data
    names: tuple[str, ...] | None = None  # [n] of the clients, in their order


DISTRIBUTIONS: Kinds[Callable[..., Division]] = Kinds("distribution")
"""`(data, ranks, how, rng)` -> `Division`; ranks [n] are 0 to n - 1 in the order of levels, which
the setting `order` deals to clients."""


@with_field_texts
@dataclass(frozen=True, repr=False)
class Distribution(Brief):
    """How training examples fall to clients; levels run linearly from 0 to their maximum."""

    kind: str = chosen_from(DISTRIBUTIONS, "iid")  # what differs between clients
    # how levels are given to clients: by a seeded permutation, or sorted
    order: str = read_by_kind("random")
    # non_iid: share of a client's data from each of its two classes
    owned_share: float = measured(read_by_kind(0.4), "share of a client's examples")
    # dirichlet: concentration; smaller is less even
    alpha: float = measured(read_by_kind(0.5), PURE)
    # dirichlet: least examples a client; shares are drawn anew until all have as many
    minimum: int = measured(read_by_kind(1), "examples")
    # noisy_images: largest sigma on [0, 1] pixels
    max_noise: float = measured(read_by_kind(0.5), "pixel values")
    # noisy_labels: largest fraction of labels moved
    max_label_noise: float = measured(read_by_kind(0.2), "share of the labels")
    # shifted_features: largest shift, in standard deviations
    max_shift: float = measured(read_by_kind(1.0), "standard deviations of a feature")

    def __post_init__(self) -> None:
        check_types("distribution", self)
        choice("distribution", self.kind, tuple(DISTRIBUTIONS))
        choice("distribution.order", self.order, ("random", "sorted"))
        require(
            0 <= self.owned_share <= 0.5,
            "distribution.owned_share must lie between 0 and 0.5, since a client owns two "
            f"classes, not {self.owned_share}.",
        )
        above_zero("distribution.alpha", self.alpha)
        count("distribution.minimum", self.minimum, 1)
        at_least("distribution.max_noise", self.max_noise, 0)
        fraction("distribution.max_label_noise", self.max_label_noise)
        at_least("distribution.max_shift", self.max_shift, 0)


@DISTRIBUTIONS("iid", reads=())
def iid(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """All clients own equally many examples, drawn at random."""
    each = len(data.train_labels) // len(ranks)
    rows = rng.permutation(len(data.train_labels))[: len(ranks) * each]
    return Division(list(rows.reshape(-1, each)))


@DISTRIBUTIONS("non_iid", reads=("owned_share",))
def non_iid(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """Client i owns classes 2i and 2i+1 (mod C), `owned_share` of its data each.

    The rest comes evenly from the other classes. Where a class runs short every client gets the
    largest equal size that is feasible.
    """
    data.require_classes("distribution=non_iid")
    n, n_classes, owned_share = len(ranks), data.n_classes, how.owned_share
    by_class = list(_shuffled_classes(data, rng))
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
    needed = shares.sum(axis=0) > 0
    if not available[needed].all():
        raise InvalidSetting(
            "distribution=non_iid divides examples of every class, but "
            f"{without(np.flatnonzero(available), n_classes)} no training examples: number the "
            "classes from 0 without gaps, or raise dataset.train_size, or choose another."
        )
    feasible = (available / np.maximum(shares.sum(axis=0), 1e-12)).min()
    size = min(len(data.train_labels) // n, int(feasible + 1e-9))
    while size > 0 and (counts(size).sum(axis=0) > available).any():
        size -= 1
    ends = np.cumsum(counts(size), axis=0)
    pieces = [np.split(rows, cuts)[:n] for rows, cuts in zip(by_class, ends.T, strict=True)]
    return Division([np.concatenate(own) for own in zip(*pieces, strict=True)])


@DISTRIBUTIONS("dirichlet", reads=("alpha", "minimum"))
def dirichlet(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """Every class is divided by shares drawn from Dirichlet(alpha).

    Shares of all classes are drawn anew until every client has `minimum` examples, as in
    NIID-Bench (partition.py), FedLab (`hetero_dir_partition`) and Flower (`DirichletPartitioner`),
    which ask for ten, for one a class, and for ten. None of their balancing is done.
    """
    data.require_classes("distribution=dirichlet")
    n, available = len(ranks), len(data.train_labels)
    require(
        how.minimum * n <= available,
        f"distribution.minimum={how.minimum} for n_clients={n} asks for more than the "
        f"{counted(available, 'training example')}: lower one of them, or raise "
        "dataset.train_size.",
    )
    concentration = np.full(n, how.alpha)
    classes, shares = [], []
    for rows in _shuffled_classes(data, rng):
        classes.append(rows)
        shares.append(rng.dirichlet(concentration))
    lengths = np.array([len(rows) for rows in classes])
    for _ in range(MOST_DRAWS):
        ends = np.floor(np.cumsum(shares, axis=1) * lengths[:, None]).astype(int)  # [C, n]
        ends[:, -1] = lengths  # rounding may leave it one short
        if np.diff(ends, axis=1, prepend=0).sum(axis=0).min() >= how.minimum:
            break
        shares = list(rng.dirichlet(concentration, len(classes)))
    else:
        raise InvalidSetting(
            "distribution=dirichlet leaves a client without "
            f"{'data' if how.minimum == 1 else f'distribution.minimum={how.minimum} examples'} in "
            f"each of {MOST_DRAWS:,} draws: lower n_clients"
            f"{' or distribution.minimum' * (how.minimum > 1)}, or raise dataset.train_size or "
            "distribution.alpha."
        )
    pieces = [np.split(rows, cuts[:-1]) for rows, cuts in zip(classes, ends, strict=True)]
    return Division([np.concatenate(own) for own in zip(*pieces, strict=True)])


@DISTRIBUTIONS("sizes", reads=("order",))
def sizes(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """The numbers of clients' examples are in proportion to 2, 3, ..., n + 1."""
    rows = rng.permutation(len(data.train_labels))
    shares = (ranks + 2) / (ranks + 2).sum()
    ends = np.floor(np.cumsum(shares) * len(rows) + 1e-9).astype(int)
    return Division(np.split(rows, ends[:-1]))


@DISTRIBUTIONS("noisy_images", reads=("order", "max_noise"))
def noisy_images(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """All clients own equally many examples; a client's images have Gaussian noise of its sigma.

    Pixels in [0, 1] are clipped after it. On examples of another scale noise is in units of each
    feature's standard deviation, and nothing is clipped. Noisy images are float32.
    """
    require(
        data.train_images.dtype != np.int32,
        "distribution=noisy_images adds noise to numbers, not to tokens: choose another.",
    )
    pixels = in_unit_interval(data.train_images)
    parts = iid(data, ranks, how, rng).parts
    levels = how.max_noise * (ranks / max(len(ranks) - 1, 1))
    images = data.train_images
    noisy = images.astype(np.float32) / np.float32(255 if images.dtype == np.uint8 else 1)
    unit = np.float32(1) if pixels else noisy.std(axis=0, dtype=np.float64).astype(np.float32)
    for part, sigma in zip(parts, levels, strict=True):
        if sigma > 0:
            noise = rng.standard_normal(noisy[part].shape, np.float32)
            spoilt = noisy[part] + np.float32(sigma) * unit * noise
            noisy[part] = np.clip(spoilt, 0, 1) if pixels else spoilt
    named = "sigma of pixel noise" if pixels else "sigma of noise, in standard deviations"
    return Division(parts, replace(data, train_images=noisy), levels, named)


@DISTRIBUTIONS("noisy_labels", reads=("order", "max_label_noise"))
def noisy_labels(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """All clients own equally many examples; a fraction of a client's labels is of other classes.

    A wrong label is any other class, equally likely.

    Classes without any example, training or test, get none.
    """
    data.require_classes("distribution=noisy_labels")
    classes = np.union1d(data.train_labels, data.test_labels)
    require(
        len(classes) > 1,
        "distribution=noisy_labels moves labels to other classes, but all examples are of class "
        f"{classes[0]}: choose another distribution.",
    )
    parts = iid(data, ranks, how, rng).parts
    levels = how.max_label_noise * (ranks / max(len(ranks) - 1, 1))
    which = np.searchsorted(classes, data.train_labels)
    moved = data.train_labels.copy()
    for part, share in zip(parts, levels, strict=True):
        wrong = rng.choice(part, round(share * len(part)), replace=False)
        others = which[wrong] + rng.integers(1, len(classes), len(wrong))
        moved[wrong] = classes[others % len(classes)]
    return Division(parts, replace(data, train_labels=moved), levels, "fraction of wrong labels")


def _shuffled_classes(data: Dataset, rng: Generator) -> Iterator[np.ndarray]:
    """The rows of each class, shuffled when it is its turn."""
    for c in range(data.n_classes):
        yield rng.permutation(np.flatnonzero(data.train_labels == c))


@dataclass(frozen=True, repr=False)
class Partition:
    """Clients' data on the device, and what distinguishes one client's data from another's."""

    data: ClientData
    levels: np.ndarray  # [n] what the distribution varies, see `level_name`
    level_name: str  # "examples", "sigma of pixel noise", "fraction of wrong labels", ...
    # The settings by which they were divided, as sections of a configuration, where known.
    made_by: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        least, most = (f"{level:,.4g}" for level in (self.levels.min(), self.levels.max()))
        return f"Partition({self.data!r}, {self.level_name} from {least} to {most})"

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the n clients are called, in their order; None: 0..n-1."""
        return self.data.names


def distribute(
    dataset: Dataset,
    n_clients: int,
    distribution: Distribution | str = Distribution(),
    seed: int = 0,
    *,
    names: Iterable[Any] | None = None,
    test: str = "shared",
    test_share: float = 0.2,
) -> Partition:
    """Divide the training set among clients; no example belongs to two of them.

    Args:
        distribution: or its kind alone.
        test: "shared": all clients are judged on the data set's test examples; "own": each on
            examples of its own, which it does not learn from: the test examples that bear its name
            with distribution=natural, else a part of its training examples.
        test_share: of a client's examples, that part, drawn by seed.
        names: of the clients, texts or integers, in any order: clients are numbered in the order of
            their names, integers by value, then texts. None: they are called 0..n-1.

    Raises:
        InvalidSetting: fewer examples than clients, a client left without any to learn from or to
            be judged on, or other than n_clients names.
    """
    dataset = instance("dataset", dataset, Dataset, "tj.load_dataset loads one")
    distribution = named("distribution", distribution, Distribution)
    choice("dataset.test", test, TESTS)
    require(
        0 < test_share < 1,
        f"dataset.test_share must be above 0 and below 1, not {test_share}.",
    )
    seed, n, available = (
        seed_of(seed),
        integer("n_clients", n_clients, 1),
        len(dataset.train_labels),
    )
    require(
        n <= available,
        f"n_clients={n} is more than the {counted(available, 'training example')}: lower n_clients "
        "or raise dataset.train_size.",
    )
    called = None if names is None else as_names("`names`", names)
    require(
        called is None or len(called) == n,
        f"`names` must name n_clients={n} clients, not {len(called or ())}.",
    )
    rng = np.random.default_rng([seed, 4])
    # The permutation is drawn wherever ranks say nothing, so that `order` changes no data there.
    kind = distribution.kind
    in_order = distribution.order == "sorted" and "order" in DISTRIBUTIONS.reads(kind)
    ranks = np.arange(n) if in_order else rng.permutation(n)
    division = DISTRIBUTIONS[kind](dataset, ranks, distribution, rng)
    require(
        division.names is None or called in (None, division.names),
        f"distribution={kind} takes the names of clients from the data: leave out `names`.",
    )
    called = division.names or called
    sizes = np.array([len(part) for part in division.parts])
    require(
        bool(sizes.all()),
        f"distribution={kind} leaves client {int(np.argmin(sizes))} without data: "
        f"lower n_clients, or {division.remedy}.",
    )
    dataset, parts = division.spoilt or dataset, division.parts
    judged = TestExamples(dataset.test_images, dataset.test_labels)
    if test == "own" and division.names and dataset.test_clients is not None:
        judged = by_names(dataset, division.names)
    elif test == "own":
        parts, judged = held_out(dataset, parts, test_share, called, [seed, 8])
    examples, sizes = padded(parts)
    data = ClientData(
        images=jnp.asarray(dataset.train_images),
        labels=jnp.asarray(dataset.train_labels),
        examples=jnp.asarray(examples),
        sizes=jnp.asarray(sizes, jnp.int32),
        test_images=jnp.asarray(judged.images),
        test_labels=jnp.asarray(judged.labels),
        names=called,
        **judged.whose(),
    )
    levels = sizes.astype(float) if division.levels is None else division.levels
    return Partition(data, levels, division.level_name, {"distribution": distribution})


from trip_jax.data import by_client as by_client  # noqa: E402  # registers distributions
