"""`python -m trip_node` is the command `trip-node`."""

import sys

from trip_node.cli.main import main

sys.exit(main())
