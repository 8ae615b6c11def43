"""The progress of repeated executions, and chunks of them that are not finished."""

from dataclasses import dataclass

import numpy as np
from jax import Array
from jaxtyping import Bool, Float


@dataclass(frozen=True)
class Progress:
    """How far executions are, in training examples visited after the first round, which is
    common to them all."""

    done: int  # with those kept from an interrupted call
    done_now: int
    total: int
    seconds: float  # spent in this call


@dataclass(frozen=True)
class Begun:
    """A chunk of executions after some of its rounds."""

    trains: Bool[np.ndarray, "k n"]  # in the order in which devices share them
    rounds: int  # that are over
    models: Float[Array | np.ndarray, "k H P"]
