"""Federations (`federation`) on their devices (`prepared`), their rounds (`simulation`, `rounds`),
and the results of these (`history`)."""

from trip_jax.simulation.simulation import Simulation

__all__ = ["Simulation"]
