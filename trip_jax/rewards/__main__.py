"""`python -m trip_jax.rewards RUN --budget 1000 --rule proportional`."""

import sys

from trip_jax.cli.rewards import main

if __name__ == "__main__":
    sys.exit(main())
