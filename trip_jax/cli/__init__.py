"""The command lines."""

from trip_jax.settings import environment  # noqa: F401  # before JAX, where variables can't be read
