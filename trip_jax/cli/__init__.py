"""The commands: `trip-jax run`, its sweeps, and the tools beside it."""

from trip_jax.settings import environment  # noqa: F401  # before JAX, where variables can't be read
