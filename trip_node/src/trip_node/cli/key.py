"""The command `trip-jax key FILE`: a private key for a client or the operator."""

from collections.abc import Sequence

from trip_jax.cli.command import Parser, command
from trip_jax.node.signing import Signer


@command
def main(argv: Sequence[str] | None = None) -> None:
    """The command line; exit code 2 where the file can't be, or holds no key."""
    parser = Parser(
        "trip-jax key",
        description="Makes a private key, for its owner's eyes alone, if FILE is not there, and "
        "prints the public key, which goes into the operator's file of keys.",
    )
    parser.add_argument("file", metavar="FILE", help="where the private key is kept")
    print(Signer.at(parser.parse_args(argv).file).public)
