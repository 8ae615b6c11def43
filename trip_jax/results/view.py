"""A run as the variables of results.nc read it."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from trip_jax.data.partition import Partition
from trip_jax.learning.evaluation import ACCURACY, LOSS, THIRD
from trip_jax.learning.quantity import NUMBER
from trip_jax.learning.utilities import columns, quantity, shown
from trip_jax.protocol.broadcast import Outcome
from trip_jax.protocol.methods.facts import GAIN, TRIP
from trip_jax.results.by_contributor import MAX_NUMBERS, by_contributor
from trip_jax.results.meaning import about_method, called, unit_symbol
from trip_jax.results.method_of_run import MethodOfRun
from trip_jax.results.result import Result
from trip_jax.results.standard_errors import standard_errors
from trip_jax.topology import Topology

if TYPE_CHECKING:
    import xarray


class ResultView:
    """A run as the variables of results.nc read it.

    Attributes:
        data: results.nc with the variables that are declared before the one that is read.
        words: what stands for the words in braces in the declarations of variables.
    """

    def __init__(self, result: Result, federation: Partition, data: "xarray.Dataset"):
        self.result, self.federation, self.data = result, federation, data
        self.n_rounds, self.n = result.records.train_loss.shape
        utility, method = result.contribution.utility, MethodOfRun.of(result)
        reporter = method.about.reports_as or method.name
        reported = about_method(reporter).unit if method.about.reports_as else method.about.unit
        measured = [quantity(one) for one in self.utilities()]
        loss = measured[LOSS].symbol
        each = NUMBER if loss == NUMBER else f"{loss} for the loss, {NUMBER} for the others"
        self.words = {
            "level": federation.level_name,
            "first utility": measured[ACCURACY].gain,
            "unit of loss": loss,
            "third utility": self.utilities()[THIRD],
            "third utility of models": measured[THIRD].of_model,
            "utility": shown(utility),
            "lcv": local(reporter),
            "unit": unit_symbol(utility, method.about.unit),
            "unit of reports": unit_symbol(utility, reported),
            "unit of lcv": each if reported == GAIN else reported.symbol,
        }

    @property
    def topology(self) -> Topology:
        return self.result.topology

    @property
    def graphs(self) -> Any:
        return self.topology.graphs

    @property
    def broadcast(self) -> Outcome | None:
        return self.result.broadcast

    @property
    def present(self) -> np.ndarray | None:
        """Who takes part [T, n]; None: everyone always does."""
        there = self.topology.present
        return None if there is None else np.asarray(there)[: self.n_rounds]

    def rounds(self) -> np.ndarray:
        return np.arange(1, self.n_rounds + 1)

    def clients(self) -> np.ndarray:
        return np.arange(self.n)

    def utilities(self) -> list[str]:
        return [shown(one) for one in columns(self.result.contribution.utility)]

    def names(self) -> np.ndarray | None:
        return np.array(self.result.names, object) if self.result.names else None

    def liars(self) -> np.ndarray:
        """Whether each client is a liar, bool [n]."""
        return np.isin(self.clients(), self.result.liars)

    def graph_of_round(self) -> np.ndarray:
        return np.array([self.topology.graph_of(t) for t in range(self.n_rounds)])

    def score_per_round_present(self) -> np.ndarray | None:
        if self.present is None:
            return None
        n_rounds_present = self.present.sum(axis=0)
        return np.where(
            n_rounds_present > 0, self.result.scores / np.maximum(n_rounds_present, 1), np.nan
        )

    def time(self) -> np.ndarray | None:
        """When each wave is over [T]; None where rounds have no time."""
        return None if self.topology.wave is None else self.topology.wave * self.rounds()

    def local_rounds(self) -> np.ndarray | None:
        """How often each client trained [n]; None where clients train once in each round."""
        if self.topology.wave is None:
            return None
        everyone = np.full(self.n, self.n_rounds)
        return everyone if self.present is None else self.present.sum(axis=0)

    def sent_in_round(self) -> np.ndarray | None:
        """The wave in which each mixed model was sent [T, n, M]; None: in the same round."""
        lag = self.topology.lag(self.n_rounds)
        return None if lag is None else self.rounds()[:, None, None] - lag

    def lcv_by_contributor(self) -> np.ndarray | None:
        """Local contributions in the run's utility [T, n, n]; None where they are too many."""
        few = self.n_rounds * self.n**2 <= MAX_NUMBERS
        return by_contributor(self.data, self.words["utility"]) if few else None

    def phi_error(self) -> np.ndarray | None:
        return self._errors[0]

    def score_error(self) -> np.ndarray | None:
        return self._errors[1]

    @cached_property
    def _errors(self) -> tuple[np.ndarray | None, ...]:
        """Standard errors of phi and of scores; None where there are none."""
        found = self.result.phi_error, self.result.score_error
        if found[1] is None:
            found = standard_errors(self.data) or (None, None)
        return tuple(None if error is None else error.astype(np.float32) for error in found)


def local(method: str) -> str:
    """What the contributions of a round by this method are called in tables."""
    return f"local contribution ({'Eq. 4' if method == TRIP else called(method)})"
