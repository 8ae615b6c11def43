"""`python -m trip_jax` is the command `trip-jax`; see cli/main.py."""

import sys

from trip_jax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
