"""The command `trip-jax key FILE`, which is that of the distribution trip-node."""

from collections.abc import Sequence

from trip_node.cli import key


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns exit code 2 where the file can't be, or holds no key."""
    return key.main(argv, "trip-jax")
