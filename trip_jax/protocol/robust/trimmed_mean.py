"""The coordinate-wise trimmed mean (Yin, Chen, Ramchandran, Bartlett, ICML 2018, Definition 2)."""

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from trip_jax.protocol.robust.order_statistics import trimmed_shares
from trip_jax.protocol.robust.rule import Near, Robust


@dataclass(frozen=True)
class TrimmedMean(Robust):
    """Each parameter is the mean of the models' without the f largest and the f smallest."""

    faulty: int  # f

    @property
    def least(self) -> int:
        return 2 * self.faulty + 1

    def shares(self, near: Near) -> Float[Array, "m P"]:
        most = (near.present.sum() - 1) // 2  # where messages are lost
        return trimmed_shares(near.models, near.present, jnp.minimum(self.faulty, most))
