"""paper/ has the paper's experiments, beyond/ what goes further, benchmarks/ what measures and
calibrates, harness/ what they share; all but the last are searched, so that experiments are called
as python -m experiments.NAME."""

from pathlib import Path

import trip_jax.environment  # noqa: F401  # before the modules that import JAX

__path__ += [str(Path(__file__).parent / folder) for folder in ("paper", "beyond", "benchmarks")]
