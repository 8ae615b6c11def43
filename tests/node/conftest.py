"""What tests of trip-node need where they run alone, in an environment that has no JAX."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))  # of reference.py, the oracle in NumPy

try:
    from hypothesis import settings
except ImportError:
    pass  # tests that draw examples are skipped
else:
    settings.register_profile("node", max_examples=25, deadline=None)
    if settings.get_current_profile_name() == "default":  # the whole suite has chosen its own
        settings.load_profile("node")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether the whole suite was asked for thorough tests."""
    return bool(request.config.getoption("thorough", default=False))
