"""The command `trip-node key FILE`: a private key for a client or the operator."""

from collections.abc import Sequence

from trip_node.cli.command import Parser, command
from trip_node.node.signing import Signer


@command
def main(argv: Sequence[str] | None = None, program: str = "trip-node") -> None:
    """The command line; exit code 2 where the file can't be, or holds no key.

    Args:
        program: the name under which it is started, for messages.
    """
    parser = Parser(
        f"{program} key",
        description="Makes a private key, for its owner's eyes alone, if FILE is not there, and "
        "prints the public key, which goes into the operator's file of keys.",
    )
    parser.add_argument("file", metavar="FILE", help="where the private key is kept")
    print(Signer.at(parser.parse_args(argv).file).public)
