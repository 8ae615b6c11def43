"""Clients that train at their own speed, and messages that take time, as settings."""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from trip_jax.settings import Kinds, choice, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.capacity import require_capacity
from trip_jax.settings.declared import check_types
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.field_texts import with_field_texts
from trip_jax.settings.idle import Effect, chosen_from, read_by_kind, switched_off
from trip_jax.settings.names import number_of
from trip_jax.settings.renamed import renamed
from trip_jax.settings.text_files import lines_of
from trip_jax.topology.graphs import Topology
from trip_jax.topology.participation import Participation, with_events
from trip_jax.topology.waves import NEVER, TICKS, of_waves, waves

LONGEST = 10**6
"""Units that a local round or a message may take."""

BYTES_A_MESSAGE = 100
"""The bytes of memory that a message to a receiver takes while waves are found."""

Durations = Callable[["ScheduleConfig", Int[np.ndarray, " n"], np.random.Generator], np.ndarray]
Latencies = Callable[
    ["ScheduleConfig", tuple[int, ...], np.ndarray, np.random.Generator], np.ndarray
]

DURATIONS: Kinds[Durations] = Kinds("schedule.duration")
"""`(settings, examples of each client, rng)` -> what a local round takes each of them [n]."""

LATENCIES: Kinds[Latencies] = Kinds("schedule.latency")
"""`(settings, shape, senders, rng)` -> what messages take; senders broadcast to the shape."""


@dataclass(frozen=True)
class ScheduleRule:
    """When clients train and models are exchanged.

    Also the decorator of a function that makes the topology:
    `@SCHEDULES("mine", reads=("delay",)) @ScheduleRule`.

    Attributes:
        exchanges: `(settings, topology, participation, rounds, sizes, drop, seed)` -> the topology
            of what is exchanged, see `ScheduleConfig.over`.
        unit: what one iteration of a run is called.
        own_presence: whether the schedule itself says when clients take part; else the setting
            `participation` does.
    """

    exchanges: Callable[..., Topology]
    unit: str = "round"
    own_presence: bool = False


SCHEDULES: Kinds[ScheduleRule] = Kinds("schedule.kind")


@with_field_texts
@dataclass(frozen=True, repr=False)
class ScheduleConfig(Brief):
    """When clients train and exchange models, as settings; all times are in one unit."""

    kind: str = chosen_from(SCHEDULES, "synchronous")  # or events: clients do not wait
    # events: of a local round
    duration: str = chosen_from(DURATIONS, "spread", Effect(by_kind=True))
    # spread: the slowest by the fastest; lognormal: one deviation
    spread: float = measured(read_by_kind(4.0), "ratio of durations")
    # events: from sending to arrival
    latency: str = chosen_from(LATENCIES, "constant", Effect(by_kind=True))
    # constant: the latency; exponential: its mean
    delay: float = measured(read_by_kind(0.0), "time unit of schedule.duration")
    # file: lines "client duration latency"
    file: str | None = read_by_kind(None)
    names: ClassVar[Sequence[str] | None] = None  # of the clients, see `among`

    def __post_init__(self) -> None:
        check_types("schedule", self)
        choice("schedule.kind", self.kind, tuple(SCHEDULES))
        choice("schedule.duration", self.duration, tuple(DURATIONS))
        choice("schedule.latency", self.latency, tuple(LATENCIES))
        require(
            1 <= self.spread <= LONGEST,
            f"schedule.spread must lie between 1 and {LONGEST:,}, not {self.spread}.",
        )
        require(
            0 <= self.delay <= LONGEST,
            f"schedule.delay must lie between 0 and {LONGEST:,}, not {self.delay}.",
        )
        reads = switched_off("schedule", self, "file") is None
        require(
            reads == (self.file is not None),
            "schedule.file must name the file when schedule.duration=file or schedule.latency=file "
            "with schedule=events, and only then.",
        )

    def among(self, names: Sequence[str] | None) -> "ScheduleConfig":
        """These settings for clients with these names, in their order; None: clients 0..n-1."""
        other = copy(self)
        object.__setattr__(other, "names", names)
        return other

    def durations(self, sizes: Int[np.ndarray, " n"], seed: int) -> Int[np.ndarray, " n"]:
        """Ticks that a local round takes each client.

        Raises:
            InvalidSetting: a file that can't be read, or does not name every client.
        """
        found = DURATIONS[self.duration](self, sizes, np.random.default_rng([seed, 6]))
        return np.clip(np.rint(TICKS * found), 1, TICKS * LONGEST).astype(np.int64)

    @property
    def unit(self) -> str:
        """What an iteration of the run is called: "round" or "wave"."""
        return SCHEDULES[self.kind].unit

    def over(
        self,
        topology: Topology,
        participation: Participation,
        rounds: int,
        sizes: Int[np.ndarray, " n"],
        *,
        drop: float,
        seed: int,
    ) -> Topology:
        """The topology of what is exchanged, a graph a round or wave where something is missing.

        Args:
            rounds: rounds or waves.
            sizes: examples of each client.
            drop: the probability that a client does not get what another sends it.

        Raises:
            InvalidSetting: several graphs with schedule=events, or a file that can't be used.
        """
        settings, participation = self.among(topology.names), participation.among(topology.names)
        make = SCHEDULES[self.kind].exchanges
        return make(settings, topology, participation, rounds, sizes, drop, seed)


@SCHEDULES("synchronous", reads=())
@ScheduleRule
def synchronous(
    settings: ScheduleConfig,
    topology: Topology,
    participation: Participation,
    rounds: int,
    sizes: Int[np.ndarray, " n"],
    drop: float,
    seed: int,
) -> Topology:
    """All clients that take part in a round train in it and exchange models at its end."""
    present = participation.present(rounds, len(sizes), seed)
    return with_events(topology, rounds, present=present, drop=drop, seed=seed)


def by_events(
    settings: ScheduleConfig,
    topology: Topology,
    participation: Participation,
    rounds: int,
    sizes: Int[np.ndarray, " n"],
    drop: float,
    seed: int,
) -> Topology:
    """Every client trains at its own speed and mixes what has arrived; `waves` are the rounds.

    Raises:
        InvalidSetting: several graphs, or messages that do not fit into memory.
    """
    require(
        len(topology.graphs.members) == 1,
        "schedule=events needs one graph for all waves: leave out topology.redraw_every and "
        "further topology.files, or set schedule=synchronous.",
    )
    durations = settings.durations(sizes, seed)
    members = np.asarray(topology.graphs.members[0])
    needed = BYTES_A_MESSAGE * rounds * members.size
    require_capacity(needed, "lower training.rounds, n_clients or topology.degree")
    rng = np.random.default_rng([seed, 7])
    # By a message's number, receiver and slot: more waves leave the first as they are.
    shape = rounds, *members.shape
    latency = LATENCIES[settings.latency](settings, shape, members, rng)
    latency = np.rint(TICKS * np.minimum(latency, LONGEST)).astype(np.int64)
    lost = np.random.default_rng([seed, 8]).random(shape) < drop
    present, age = waves(durations, np.where(lost, NEVER, latency), members)
    return of_waves(topology, present, age, float(durations.min() / TICKS))


SCHEDULES("events", reads=("duration", "spread", "latency", "delay", "file"))(
    ScheduleRule(by_events, unit="wave", own_presence=True)
)


@DURATIONS("equal", reads=())
def equal(
    settings: ScheduleConfig, sizes: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """All clients take the same time for a local round."""
    return np.ones(len(sizes))


@DURATIONS("spread", reads=("spread",))
def spread(
    settings: ScheduleConfig, sizes: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """Durations evenly spaced on a logarithmic scale from 1 to `spread`, dealt at random."""
    return rng.permutation(np.geomspace(1, settings.spread, len(sizes)))


@DURATIONS("lognormal", reads=("spread",))
def lognormal(
    settings: ScheduleConfig, sizes: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """Durations drawn log-normally, with median 1 and geometric standard deviation `spread`."""
    return rng.lognormal(0, math.log(settings.spread), len(sizes))


@DURATIONS("sizes", reads=())
def by_sizes(
    settings: ScheduleConfig, sizes: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, " n"]:
    """Durations in proportion to clients' examples, 1 on average."""
    return np.asarray(sizes / np.mean(sizes))


@LATENCIES("constant", reads=("delay",))
def constant(
    settings: ScheduleConfig, shape: tuple[int, ...], senders: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Every message takes the same time, `delay`."""
    return np.full(shape, settings.delay)


@LATENCIES("exponential", reads=("delay",))
def exponential(
    settings: ScheduleConfig, shape: tuple[int, ...], senders: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Latencies drawn anew for each message and receiver, so that one may overtake another."""
    return rng.exponential(settings.delay, shape)


def _of_file(settings: ScheduleConfig, n: int) -> Float[np.ndarray, "n 2"]:
    """Duration and latency of each client, of the lines of the file."""
    found = np.full((n, 2), np.nan)
    for where, line in lines_of("schedule.file", str(settings.file)):
        name, *times = line.strip().rsplit(maxsplit=2)
        try:
            duration, latency = map(float, times)
        except ValueError:
            duration, latency = math.nan, math.nan
        numbered = settings.names is not None or name.isdecimal()
        require(
            numbered and 0 < duration <= LONGEST and 0 <= latency <= LONGEST,
            f"{where} must be 'client duration latency', times up to {LONGEST:,}, the duration "
            "above 0.",
        )
        client = number_of(where, name, n, settings.names)
        require(np.isnan(found[client, 0]), f"{where} names client {name} again.")
        found[client] = duration, latency
    for client in np.flatnonzero(np.isnan(found[:, 0]))[:1]:
        called = settings.names[client] if settings.names else client
        raise InvalidSetting(f"schedule.file={settings.file} lacks a line for client {called}.")
    return found


DURATIONS("file", reads=("file",))(
    lambda settings, sizes, rng: _of_file(settings, len(sizes))[:, 0]
)
LATENCIES("file", reads=("file",))(
    lambda settings, shape, senders, rng: np.broadcast_to(
        _of_file(settings, len(senders))[:, 1][senders], shape
    )
)


__getattr__ = renamed(
    __name__,
    Clocks="trip_jax.topology.asynchrony.ScheduleConfig",
    Timetable="trip_jax.topology.asynchrony.ScheduleRule",
)
