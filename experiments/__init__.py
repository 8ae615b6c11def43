"""A module here is a command: python -m experiments.NAME writes a table or figures.

paper/ has what the paper's experiments share, and the queue of all of them; benchmarks/ what
measures; frameworks/ what others are measured by; harness/ what all share.
"""

from importlib.util import find_spec

if find_spec("jax"):  # the environments of other frameworks have none
    import trip_jax.settings.environment  # noqa: F401  # before the modules that import JAX
