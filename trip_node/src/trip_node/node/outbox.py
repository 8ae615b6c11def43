"""Reports, or records of predictions, that are kept before they are sent, and sent as kept.

A client that crashes after it has sent a report may compute another one for the same round, since
sampling and floating point need not repeat. Signed, the two would prove that it equivocates. So a
round's first report is written to disk before it leaves, and no other is signed for that round.
"""

import base64
import re
from pathlib import Path
from typing import TypeVar

from trip_node.node.durable import create, synchronise
from trip_node.node.messages import Message, bytes_of, message_of
from trip_node.node.predictions import Predictions
from trip_node.node.report import SIGNATURE_BYTES, Report
from trip_node.node.sending import NotTaken, hand_in
from trip_node.node.signing import Signer, is_signed
from trip_node.settings import require
from trip_node.settings.errors import InvalidSetting

FINAL = ("late", "equivocating")
"""Reasons of refusal that no later attempt changes."""

ENDS = {"report": "report", "record": "predictions"}
"""How the names of files end, by what they hold."""


M = TypeVar("M", Report, Predictions)


class Outbox:
    """A folder with the reports of one client in one federation, or with its records.

    It holds a file ROUND.report for each round: the signature's 64 bytes, and the report as JSON.
    A record of predictions stands in ROUND.predictions, as `to_bytes` gives it with a signer.
    Beside it stands ROUND.sent once the coordinator has stored the report, or ROUND.refused with
    its sentence if it never will. Files stay, as they tell what was signed.

    Args:
        folder: the folder of the outbox, which is made if it is not there.
        signer: the client's key.
    """

    def __init__(self, folder: Path | str, signer: Signer):
        self._folder, self._signer = Path(folder), signer

    def keep(self, report: M) -> M:
        """Sign a report or record and write it to disk.

        Returns:
            the report that is kept: this one, or the one that was kept for the round before.

        Raises:
            InvalidSetting: the folder keeps reports of another client or federation, or a file of
                it is damaged.
            OSError: it can't be written; then nothing may be sent.
        """
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            synchronise(self._folder.parent)
        for round in self.rounds()[:1]:
            self._require_ours(report, self._kept(round)[0])
        message = bytes_of(report)
        packet = base64.b64decode(self._signer.sign(message)) + message
        create(self._folder / f"{report.round}.{ENDS[report.KIND]}", packet)
        kept = self._kept(report.round)[0]
        self._require_ours(report, kept)
        assert isinstance(kept, type(report))
        return kept

    def rounds(self) -> list[int]:
        """Rounds whose reports are kept, in their order."""
        if not self._folder.is_dir():
            return []
        names = (_FILE.fullmatch(one.name) for one in self._folder.iterdir())
        return sorted({int(name[1]) for name in names if name and str(int(name[1])) == name[1]})

    def waiting(self) -> list[int]:
        """Rounds whose reports are neither stored by the coordinator nor refused for good."""
        return [t for t in self.rounds() if not (self._sent(t).exists() or self._no(t).exists())]

    def send_all(self, address: str, timeout: float = 30) -> None:
        """Send what waits, in the order of rounds, as it was kept.

        Args:
            address, timeout: as of `trip_node.node.sending.send`.

        Raises:
            InvalidSetting: the coordinator refuses some, or files of some are damaged; all others
                are sent, and the message is on the first. Refusals that another attempt may change
                stay waiting.
            OSError: the coordinator can't be reached, or an answer is no receipt: what is not
                marked as sent stays waiting.
        """
        refusals: list[InvalidSetting] = []
        for round in self.waiting():
            try:
                report, message, signature = self._kept(round)
            except InvalidSetting as damage:
                refusals.append(damage)
                continue
            try:
                hand_in(report, message, signature, address, timeout)
                create(self._sent(round), b"")
            except NotTaken as refusal:
                if refusal.reason in FINAL:
                    create(self._no(round), f"{refusal.reason}: {refusal}\n".encode())
                refusals.append(InvalidSetting(f"Round {round}: {refusal}"))
        if refusals:
            raise refusals[0]

    def _kept(self, round: int) -> tuple[Message, bytes, str]:
        """A report or record, its message and the signature."""
        path = self._path(round)
        packet = path.read_bytes()
        signature, message = packet[:SIGNATURE_BYTES], packet[SIGNATURE_BYTES:]
        public = base64.b64decode(self._signer.public)
        require(
            len(signature) == SIGNATURE_BYTES and is_signed(message, signature, public),
            f"{path} is damaged or signed by another key: restore it with its key, or give this "
            "key an outbox of its own.",
        )
        report = message_of(message)
        right = (report.round, f".{ENDS[report.KIND]}") == (round, path.suffix)
        require(right, f"{path} holds the {report.KIND} on round {report.round}.")
        return report, message, base64.b64encode(signature).decode()

    def _require_ours(self, report: Message, kept: Message) -> None:
        require(
            (report.client, report.federation) == (kept.client, kept.federation),
            f"{self._folder} keeps {kept.KIND}s of client {kept.client!r} in the federation "
            f"{kept.federation!r}, not of {report.client!r} in {report.federation!r}: give each an "
            "outbox of its own.",
        )
        require(
            report.KIND == kept.KIND,
            f"{self._folder} keeps {kept.KIND}s, not {report.KIND}s: give each an outbox of its "
            "own.",
        )

    def _path(self, round: int) -> Path:
        """The file of a round, of whichever kind is there."""
        paths = [self._folder / f"{round}.{end}" for end in ENDS.values()]
        return next((one for one in paths if one.exists()), paths[0])

    def _sent(self, round: int) -> Path:
        return self._folder / f"{round}.sent"

    def _no(self, round: int) -> Path:
        return self._folder / f"{round}.refused"


_FILE = re.compile(rf"(-?[0-9]{{1,19}})\.(?:{'|'.join(ENDS.values())})")
"""The name of a file of a round."""
