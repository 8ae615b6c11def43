"""The shapes that functions state are checked."""

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from tests.conftest import tiny


def test_swapped_arguments_are_told() -> None:
    simulation = tiny()
    theta, sender = simulation.learner.model.theta, jnp.zeros(6, bool)
    with pytest.raises(TypeCheckError, match="models"):
        simulation.learner.evaluate(theta)  # one model, not a stack
    with pytest.raises(TypeCheckError, match="lost"):
        simulation.topology.at(0).with_lost(sender)  # clients, not slots
