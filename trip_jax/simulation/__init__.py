"""A federation ready to run (`prepared`), its rounds (`simulation`, `rounds`), and what they were
(`history`)."""

from trip_jax.simulation.simulation import Simulation

__all__ = ["Simulation"]
