"""Every setting of a run: frozen dataclasses that check themselves.

Each stands where it is used. They are the arguments of the Python API and, by runs/schema.py, what
Hydra checks configuration files and the command line against. A wrong value raises
`InvalidSetting`.
"""

from dataclasses import dataclass, field, fields, replace

from trip_jax.data.partition import Distribution
from trip_jax.data.sources import DatasetConfig
from trip_jax.learning.distributed import Distributed
from trip_jax.learning.models import ModelConfig
from trip_jax.learning.precision import PRECISIONS
from trip_jax.learning.privacy import Privacy
from trip_jax.learning.training import Training
from trip_jax.protocol.adversaries import Adversary
from trip_jax.protocol.aggregation import Aggregation
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.defences import Defence
from trip_jax.protocol.exchange import ChannelConfig
from trip_jax.protocol.reporting import ProtocolConfig
from trip_jax.protocol.weighing import Trust
from trip_jax.settings import (
    EXECUTION,
    PURE,
    above_zero,
    choice,
    count,
    execution,
    measured,
    require,
)
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types, seed_of
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.figures import Drawing, drawing_of
from trip_jax.settings.renamed import renamed
from trip_jax.topology import SCHEDULES, Participation, ScheduleConfig, TopologyConfig
from trip_jax.tracking import TRACKERS
from trip_jax.truth.settings import TruthConfig

__all__ = [
    "Adversary",
    "Aggregation",
    "ChannelConfig",
    "Checkpoint",
    "Config",
    "Contribution",
    "DatasetConfig",
    "Defence",
    "Distributed",
    "Distribution",
    "ModelConfig",
    "Participation",
    "Privacy",
    "ProtocolConfig",
    "ScheduleConfig",
    "TopologyConfig",
    "Training",
    "Trust",
    "TruthConfig",
]


@with_field_texts
@dataclass(frozen=True, repr=False)
class Checkpoint(Brief):
    """When a run saves what it needs to go on after an interruption."""

    # rounds; None: once a minute has passed since the last
    every: int | None = measured(None, "rounds")
    keep: int = measured(2, "checkpoints")  # checkpoints that are kept, the newest

    def __post_init__(self) -> None:
        check_types("checkpoint", self)
        count("checkpoint.every", self.every, 1)
        count("checkpoint.keep", self.keep, 1)


@dataclass(frozen=True, repr=False)
class Config(Brief):
    """The settings of a run, in the groups of the command line."""

    n_clients: int = measured(8, "clients")
    seed: int = measured(0, PURE)
    devices: int | str | None = measured(execution("all"), "devices")  # None: all
    shard_models: bool = execution(False)  # each device holds a part of the models, not all
    precision: str = "float32"  # of matrix products in training and evaluation
    resume: str | None = execution(None)  # the directory of a run to go on with, or "auto"
    checkpoint: Checkpoint = field(default_factory=Checkpoint, metadata=EXECUTION)
    keep_phi: bool | None = None  # [n, n]; None: of up to `MAX_KEPT` clients
    # GiB that a run may take; None: what there is
    memory_limit: float | None = measured(execution(None), "GiB")
    keep_programs: bool = execution(True)  # compiled programs, on disk for the next process
    figures: tuple[str, ...] = execution(("png",))  # formats of the figures
    # 1 or 2 columns of a paper; None: as wide as they need
    figure_columns: int | None = measured(execution(None), "columns")
    figure_titles: bool = execution(True)
    track: str = execution("none")  # who hears of the run while it goes on
    distributed: Distributed = field(default_factory=Distributed, metadata=EXECUTION)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    distribution: Distribution = field(default_factory=Distribution)
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    participation: Participation = field(default_factory=Participation)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: Training = field(default_factory=Training)
    contribution: Contribution = field(default_factory=Contribution)
    adversary: Adversary = field(default_factory=Adversary)
    defence: Defence = field(default_factory=Defence)
    aggregation: Aggregation = field(default_factory=Aggregation)
    channel: ChannelConfig = field(default_factory=ChannelConfig)
    trust: Trust = field(default_factory=Trust)
    privacy: Privacy = field(default_factory=Privacy)
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    truth: TruthConfig = field(default_factory=TruthConfig, metadata=EXECUTION)

    def __post_init__(self) -> None:
        check_types("", self)
        count("n_clients", self.n_clients, 1)
        require(
            self.devices in ("all", None) or (isinstance(self.devices, int) and self.devices >= 1),
            f"devices must be a number of at least 1, or all, not {self.devices}.",
        )
        above_zero("memory_limit", self.memory_limit)
        require(
            self.resume != "",
            "resume is empty, as a variable of the shell is that nobody has set: name a directory, "
            "or give resume=auto.",
        )
        choice("precision", self.precision, tuple(PRECISIONS))
        choice("track", self.track, tuple(TRACKERS))
        require(
            self.devices in ("all", None) or self.distributed.coordinator is None,
            f"devices={self.devices} can't be chosen with distributed.coordinator: all are used.",
        )
        require(
            not SCHEDULES[self.schedule.kind].own_presence or self.participation.kind == "always",
            f"schedule={self.schedule.kind} says itself when clients take part: leave out "
            f"participation={self.participation.kind}, or set schedule=synchronous.",
        )
        seed_of(self.seed)
        drawing_of(self.figures, self.figure_columns, self.figure_titles)  # refuses others
        self.truth.require(self.n_clients)
        require(
            self.truth.kind == "none" or self.keep_phi is not False,
            f"truth={self.truth.kind} is compared with all contributions: leave out "
            "keep_phi=false.",
        )
        if self.dataset.client is not None:
            object.__setattr__(self, "distribution", Distribution("natural"))

    @property
    def kinds(self) -> dict[str, str]:
        """What was chosen for each section that is one of several kinds."""
        sections = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: one.kind for name, one in sections.items() if hasattr(one, "kind")}

    @property
    def drawing(self) -> Drawing:
        """The formats and widths of figures, from the settings `figures` and `figure_*`."""
        return drawing_of(self.figures, self.figure_columns, self.figure_titles)

    def calibrated(self) -> "Config":
        """These settings, with C2's penalty and distance filled in where they are None."""
        c = self.contribution
        defence = self.defence.calibrated(c.utility, c.scaling, c.value)
        return replace(self, defence=defence)


__getattr__ = renamed(__name__, Clocks="trip_jax.config.ScheduleConfig")
