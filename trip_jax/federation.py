"""What is simulated: clients with their data and network, who sends to whom, and the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import optax

from trip_jax.data.federation import ClientData
from trip_jax.data.partition import Partition
from trip_jax.learning.model import Model
from trip_jax.learning.privacy import Privacy
from trip_jax.learning.training import Training
from trip_jax.protocol.adversaries import Adversary
from trip_jax.protocol.aggregation import Aggregation
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.exchange import ChannelConfig
from trip_jax.protocol.reporting import ProtocolConfig
from trip_jax.protocol.weighing import Trust
from trip_jax.settings import execution
from trip_jax.settings.brief import Brief, brief, html_table
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.names import require_alike
from trip_jax.topology import Topology

MAX_KEPT = 10_000
"""Clients whose contributions to each other are kept as a matrix unless it is asked for."""


@dataclass(frozen=True, repr=False)
class Settings(Brief):
    """The settings of a federation by their names in a configuration, where `Config` has them, too.

    Attributes:
        rules: fields of `protocol.rules.Rules` that replace what the settings say.
        optimizer: stands in place of the one that `training` names.
    """

    training: Training = Training()
    contribution: Contribution = Contribution()
    adversary: Adversary = Adversary()
    defence: Defence = Defence()
    aggregation: Aggregation = Aggregation()
    channel: ChannelConfig = ChannelConfig()
    trust: Trust = Trust()
    privacy: Privacy = Privacy()
    protocol: ProtocolConfig = ProtocolConfig()
    rules: Mapping[str, Any] = field(default_factory=dict)
    optimizer: optax.GradientTransformation | None = None
    seed: int = 0
    precision: str = "float32"
    shard_models: bool = execution(False)
    keep_phi: bool | None = None
    memory_limit: float | None = execution(None)


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single truth, and long texts
class Federation:
    """Clients that learn together: their network, their data, who sends to whom, and how.

    Attributes:
        model: every client's network.
        data: what the n clients own, and the shared test set.
        topology: the graph of each round.
        settings: how they train, exchange, report and are attacked.
        levels: [n] what the distribution of data varies from client to client; None: examples.
        level_name: what the levels are, in words.
        made_by: the settings by which model, data and topology were made, as sections of a
            configuration; those are missing that were given as they are.

    Raises:
        InvalidSetting: data and topology are of different n, or names.
    """

    model: Model
    data: ClientData
    topology: Topology
    settings: Settings = Settings()
    levels: np.ndarray | None = None
    level_name: str = "examples"
    made_by: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        data, topology = self.data, self.topology
        if topology.n_clients != self.n:
            raise InvalidSetting(
                f"The topology has {topology.n_clients} clients, but n_clients={self.n} own data."
            )
        if data.names is not None and topology.names is not None:
            require_alike("The topology", topology.names, "the data", data.names)

    def __repr__(self) -> str:
        return f"Federation({self.in_words()})"

    def _repr_html_(self) -> str:
        return self.table("Federation")

    def in_words(self) -> str:
        """The number of clients, the seed and the settings that are no defaults, in one line."""
        return ", ".join(f"{name}={brief(value)}" for name, value in self._chosen().items())

    def table(self, title: str) -> str:
        """What is simulated as a table for notebooks, settings that are no defaults below."""
        rows = {"model": self.model, "data": self.data, "topology": self.topology} | self._chosen()
        return html_table(title, ((name, brief(value), False) for name, value in rows.items()))

    def _chosen(self) -> dict[str, Any]:
        usual, settings = vars(Settings()), vars(self.settings)
        changed = {name: value for name, value in settings.items() if value != usual[name]}
        return {"n": self.n, "seed": self.settings.seed} | changed

    @property
    def partition(self) -> Partition:
        """The clients' data, and what distinguishes one client's data from another's."""
        sizes = np.asarray(self.data.sizes, float)
        return Partition(self.data, sizes if self.levels is None else self.levels, self.level_name)

    @property
    def n(self) -> int:
        """The number n of clients in the federation."""
        return len(self.data.sizes)

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the n clients are called, in their order; None: 0..n-1."""
        return self.data.names or self.topology.names

    @property
    def keeps_phi(self) -> bool:
        """Whether contributions are kept as a matrix [n, n]."""
        keep = self.settings.keep_phi
        return self.n <= MAX_KEPT if keep is None else keep

    @property
    def defence(self) -> Defence:
        """The defence, with C2's penalty and distance filled in where the setting is None."""
        contribution = self.settings.contribution
        return self.settings.defence.calibrated(
            contribution.utility, contribution.scaling, contribution.value
        )

    def changed(self, **settings: Any) -> "Federation":
        """This federation with some settings changed."""
        return replace(self, settings=replace(self.settings, **settings))
