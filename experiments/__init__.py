"""paper/ has the paper's experiments, benchmarks/ what measures and calibrates, harness/ what they
share; the first two are searched, too, so that all are called as python -m experiments.NAME."""

from pathlib import Path

__path__ += [str(Path(__file__).parent / folder) for folder in ("paper", "benchmarks")]
