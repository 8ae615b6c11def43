from dataclasses import dataclass

from trip_jax.settings import *
from trip_jax.settings import above_zero, at_least, choice, fraction, require


@dataclass(frozen=True)
class DatasetConfig:
    """Which images; `train_size` and `test_size` are drawn by seed (None: all)."""

    name: str = "digits"
    train_size: int | None = None
    test_size: int = 500

    def __post_init__(self) -> None:
        choice("dataset", self.name, ("digits", "fashion_mnist", "cifar10", "mnist", "synthetic"))
        at_least("dataset.train_size", self.train_size, 1)
        at_least("dataset.test_size", self.test_size, 1)


@dataclass(frozen=True)
class Distribution:
    """How training examples fall to clients; levels run linearly from 0 to their maximum."""

    kind: str = "iid"
    order: str = "random"  # how levels are given to clients: by a seeded permutation, or sorted
    owned_share: float = 0.4  # non_iid: share of a client's data from each of its two classes
    alpha: float = 0.5  # dirichlet: concentration; smaller is less even
    max_noise: float = 0.5  # noisy_images: largest sigma on [0, 1] pixels
    max_label_noise: float = 0.2  # noisy_labels: largest fraction of labels moved

    def __post_init__(self) -> None:
        kinds = ("iid", "non_iid", "dirichlet", "sizes", "noisy_images", "noisy_labels")
        choice("distribution", self.kind, kinds)
        choice("distribution.order", self.order, ("random", "sorted"))
        require(
            0 <= self.owned_share <= 0.5,
            "distribution.owned_share must lie between 0 and 0.5, since a client owns two "
            f"classes, not {self.owned_share}.",
        )
        above_zero("distribution.alpha", self.alpha)
        at_least("distribution.max_noise", self.max_noise, 0)
        fraction("distribution.max_label_noise", self.max_label_noise)


@dataclass(frozen=True)
class TopologyConfig:
    """Who sends to whom, and with which mixing weights models are averaged."""

    kind: str = "regular"
    degree: int = 4  # regular, watts_strogatz: neighbours of a client
    probability: float = 0.1  # watts_strogatz: of rewiring; erdos_renyi: of an edge
    attachments: int = 2  # barabasi_albert: edges that a new client brings
    directed: bool = False  # keep one direction of every edge
    weights: str = "data_size"
    redraw_every: int | None = None  # rounds until a new graph is drawn; None: static
    files: tuple[str, ...] = ()  # kind=file: edge lists or GraphML; several take turns
    allow_disconnected: bool = False

    def __post_init__(self) -> None:
        kinds = ("regular", "star", "line", "ring", "complete", "watts_strogatz", "erdos_renyi")
        choice("topology", self.kind, (*kinds, "barabasi_albert", "file"))
        choice("topology.weights", self.weights, ("data_size", "uniform", "metropolis"))
        at_least("topology.degree", self.degree, 1)
        fraction("topology.probability", self.probability)
        at_least("topology.attachments", self.attachments, 1)
        at_least("topology.redraw_every", self.redraw_every, 1)
        object.__setattr__(self, "files", tuple(self.files))
        require(
            bool(self.files) == (self.kind == "file"),
            "topology.files must name the graph files when topology=file, and only then.",
        )
        require(
            len(self.files) < 2 or self.redraw_every is not None,
            "topology.redraw_every must say after how many rounds the next of topology.files "
            "takes its turn.",
        )
