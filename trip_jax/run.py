"""The command line, `python -m trip_jax.run`, and `run` for programs; see cli/run.py."""

from trip_jax.cli.run import main
from trip_jax.runs.launch import run

__all__ = ["main", "run"]

if __name__ == "__main__":
    main()
