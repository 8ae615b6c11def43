"""The truth that a run is held against, as it stands in results.nc and summary.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jaxtyping import Float

from trip_jax.learning.utilities import columns
from trip_jax.protocol.methods.facts import GAIN
from trip_jax.results.meaning import unit_symbol
from trip_jax.results.variables import VARIABLES, OfTruth
from trip_jax.settings import require
from trip_jax.truth.metrics import cosine_distance, spearman
from trip_jax.truth.shapley_value import GroundTruth

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class HeldTruth:
    """The truth that a run is held against."""

    values: Float[np.ndarray, "n n"]  # contribution of client j to client i's final model
    errors: Float[np.ndarray, "n n"]
    executions: int
    seconds: float | None = None  # that it took, where known

    @classmethod
    def of(cls, truth: GroundTruth, utility: str, n: int, seconds: float | None = None) -> Self:
        """What a truth says by the utility of a run of n clients.

        Raises:
            InvalidSetting: it is not of so many clients' models, as with a server.
        """
        clients = truth.values.shape[:2]
        require(
            clients == (n, n),
            f"truth must be of the run's {n} clients and models, as tj.decentralised_truth gives "
            f"it, not of {clients[1]} clients and {clients[0]} models.",
        )
        at = columns(utility).index(utility)
        values, errors = truth.values[..., at], truth.standard_error[..., at]
        return cls(values, errors, len(truth.inside), seconds)

    def added_to(self, data: "xarray.Dataset") -> "xarray.Dataset":
        """results.nc with the variables that `OfTruth` declares."""
        unit = unit_symbol(str(data.attrs["contribution_utility"]), GAIN)
        declared = [one for one in VARIABLES if isinstance(one, OfTruth)]
        words = {"unit of gain": unit}
        return data.assign({one.name: one.named(one.of(self), words) for one in declared})

    def in_summary(self, data: "xarray.Dataset") -> dict[str, Any]:
        """What summary.json says of it: how far contributions are from it, and what it took.

        Args:
            data: results.nc with the truth. Distances are None where a vector has no direction.
        """
        phi, truth = data.phi.values, data.truth.values
        found = {
            "distance": cosine_distance(phi, truth).mean(),
            "distance_of_equal_parts": cosine_distance(np.ones_like(truth), truth).mean(),
            "rank_correlation": spearman(data.score.values, data.true_score.values),
        }
        compared = {name: float(one) if np.isfinite(one) else None for name, one in found.items()}
        return compared | {"executions": self.executions, "seconds": self.seconds}


def in_words(summary: Mapping[str, Any]) -> str:
    """How far a run is from its truth, in a sentence; "" where it is held against none.

    Args:
        summary: summary.json.
    """
    truth = summary.get("truth")
    if truth is None:
        return ""
    if truth["distance"] is None:
        return (
            "The cosine distance to the truth is not defined: a client's contributions are all 0."
        )
    return (
        f"The cosine distance to the truth ({truth['executions']:,} executions) is "
        f"{truth['distance']:.4f}; that of equal parts for all clients is "
        f"{truth['distance_of_equal_parts']:.4f}."
    )
