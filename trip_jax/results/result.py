"""What came out of a run: the time that its rounds took, and its result."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from jax import Array

from trip_jax.federation import Federation
from trip_jax.learning.evaluation import ACCURACY
from trip_jax.learning.privacy import Guarantee
from trip_jax.protocol import traced_back
from trip_jax.protocol.broadcast import Outcome
from trip_jax.protocol.contributions import Contribution
from trip_jax.protocol.state import Record
from trip_jax.settings.declared import clients_of
from trip_jax.settings.plurals import counted
from trip_jax.topology import Topology

if TYPE_CHECKING:
    import pandas
    import xarray

    from trip_jax.results.plots import Plots


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds and work of one or more rounds."""

    training: float = 0.0
    evaluation: float = 0.0
    coordination: float = 0.0
    samples: int = 0  # training examples visited
    coalitions: int = 0  # coalition models evaluated

    @property
    def seconds(self) -> float:
        """The seconds of all phases together."""
        return self.training + self.evaluation + self.coordination

    @classmethod
    def total(cls, timings: Sequence["Timing"]) -> "Timing":
        """The sum of the seconds and the work of several rounds."""
        return cls(*(sum(values) for values in zip(*map(astuple, timings), strict=True)))


@dataclass(frozen=True, repr=False)
class Result:
    """A run's outcome in NumPy arrays.

    `records` has a leading axis T on every field of `Record`; `topology` and `liars` say what
    the federation was.
    """

    phi: np.ndarray | None  # [n, n]; None if it was not kept
    initial: np.ndarray  # [3] utility of theta^(0), as `UTILITIES`
    models: Array  # [n, P] final models
    records: Record
    topology: Topology
    contribution: Contribution  # what phi measures
    liars: np.ndarray  # [F] int
    timings: list[Timing]  # T
    compile_seconds: float
    n_devices: int  # that shared the work
    planned_bytes: int | None  # the planned memory, see learning/memory.py
    precision: str  # the precision of matrix products
    message_bytes: tuple[int, int]  # of a model to learn from, and of what computes contributions
    guarantee: Guarantee | None  # of privacy, for the client that took part most often
    federation: Federation  # what was simulated, its settings and seed included
    broadcast: Outcome | None = None  # what clients find without a coordinator; None: there is one
    # Of a method that draws coalitions when the run is over; those of sampled local contributions
    # are told by `results.standard_errors`.
    phi_error: np.ndarray | None = None  # [n, n]
    score_error: np.ndarray | None = None  # [n]

    def __repr__(self) -> str:
        from trip_jax.results.meaning import first_of_models
        from trip_jax.results.scores import in_a_few_lines

        scores = None if self.phi is None else self.scores  # which would have to be traced
        measured = first_of_models(self.contribution.utility)
        out = in_a_few_lines(self.accuracy, scores, self.liars.tolist(), self.names, measured)
        return (
            f"Result({self.federation.in_words()})\n{out}\n"
            ".to_dataframe(), .plot.scores(), .plot.phi() and .plot.accuracy() show more"
        )

    def _repr_html_(self) -> str:
        from trip_jax.results.scores import html_of

        return f"<pre>{escape(repr(self))}</pre>" if self.phi is None else html_of(self.data)

    @property
    def title(self) -> str:
        """What was run, in one line: clients, rounds and settings that are no defaults."""
        return f"{counted(len(self.timings), 'round')}, {self.federation.in_words()}"

    @cached_property
    def data(self) -> "xarray.Dataset":
        """The result as the labelled arrays of results.nc."""
        from trip_jax.results.dataset import to_dataset

        return to_dataset(self, self.federation.partition, self.title)

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each client: score, share, examples and more, see `client_table`."""
        from trip_jax.results.scores import client_table

        return client_table(self.data)

    @property
    def plot(self) -> "Plots":
        """The figures of the run: `result.plot.scores()`, `.phi()`, `.accuracy()`, `.graph()`."""
        from trip_jax.results.plots import Plots

        return Plots(self.data)

    @cached_property
    def scores(self) -> np.ndarray:
        """[n] each client's mean contribution to all clients' final models."""
        if self.phi is not None:
            return self.phi.mean(axis=0)
        return traced_back.scores(self.topology.n_clients, self._backwards()).astype(np.float32)

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the n clients are called, in their order; None: 0..n-1."""
        return self.topology.names

    def rows_of_phi(self, clients: Sequence[int | str]) -> np.ndarray:
        """[R, n] contributions to the final models of some clients, whether or not phi was kept.

        Args:
            clients: their numbers, or names where they have any.
        """
        who = clients_of(clients, n := self.topology.n_clients, self.names)
        if self.phi is not None:
            return self.phi[who]
        return traced_back.rows(who, n, self._backwards()).astype(np.float32)

    def _backwards(self) -> Iterator[traced_back.RoundMatrices]:
        of_round = np.array([self.topology.graph_of(t) for t in range(len(self.timings))])
        graphs, records = self.topology.graphs, self.records
        members, mask, shares, adopted = map(
            np.asarray, (graphs.members, graphs.mask, records.shares, records.adopted)
        )
        lag = self.topology.lag(len(of_round))
        return traced_back.backwards(members, mask, of_round, shares, adopted, lag)

    @property
    def accuracy(self) -> np.ndarray:
        """[T, n] test accuracy of every client's model after each round; R² in regression."""
        return np.asarray(self.records.utility)[..., ACCURACY]
