"""The coordinate-wise median (Yin, Chen, Ramchandran, Bartlett, ICML 2018, Definition 1)."""

from dataclasses import dataclass

from jax import Array
from jaxtyping import Float

from trip_jax.protocol.robust.order_statistics import trimmed_shares
from trip_jax.protocol.robust.rule import Near, Robust


@dataclass(frozen=True)
class Median(Robust):
    """Each parameter is the median of the models', or the mean of the two in the middle."""

    def shares(self, near: Near) -> Float[Array, "m P"]:
        return trimmed_shares(near.models, near.present, (near.present.sum() - 1) // 2)
