"""paper/ has the paper's experiments, beyond/ what goes further, benchmarks/ what measures and
calibrates, frameworks/ what others are measured by, harness/ what all share; the first three are
searched, so that experiments are called as python -m experiments.NAME."""

from importlib.util import find_spec
from pathlib import Path

if find_spec("jax"):  # the environments of other frameworks have none
    import trip_jax.settings.environment  # noqa: F401  # before the modules that import JAX

__path__ += [str(Path(__file__).parent / folder) for folder in ("paper", "beyond", "benchmarks")]
