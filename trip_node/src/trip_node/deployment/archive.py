"""predictions.tar: the records of closed rounds as they were signed, from which phi follows."""

import base64
import tarfile
from collections.abc import Iterator

from trip_node.deployment.ledger import Ledger

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
"""The two empty blocks that end a tar archive."""


def entries(ledger: Ledger, round: int) -> Iterator[bytes]:
    """The records of a round as files of an archive, each of which is read when it is asked for."""
    of_round = "SELECT client FROM reports WHERE round = ? ORDER BY client"
    one = "SELECT signature, message FROM reports WHERE round = ? AND client = ?"
    with ledger.reading() as db:
        clients = [name for (name,) in db.execute(of_round, (round,))]
    for k, client in enumerate(clients):  # whose names may be no names of files
        with ledger.reading() as db:
            signature, message = db.execute(one, (round, client)).fetchone()
        about = tarfile.TarInfo(f"records/round{round}-{k}.predictions")
        content = base64.b64decode(signature) + message
        about.size = len(content)
        yield about.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % BLOCK)
