"""One node: trains, exchanges models, reports, passes reports on, and traces contributions.

    python -m examples.p2p.peer FOLDER NAME

It reads FOLDER/federation.json, FOLDER/keys.json and what is its own in FOLDER/NAME, where alone it
writes: phi.json, equivocations.json, reports.csv and models.npz. `python -m examples.p2p` starts
several.
"""

import asyncio
import base64
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from examples.p2p.learners import LEARNERS, Vector
from examples.p2p.links import Links
from examples.p2p.wire import (
    MODEL,
    REPORT,
    SEEN,
    About,
    Broken,
    from_bytes,
    opened,
    sealed,
    to_bytes,
)
from trip_node.node import LocalEvaluator, Report
from trip_node.node.admission import Federation, Refused
from trip_node.node.gossip import Gossip, Signed
from trip_node.node.report import COLUMNS
from trip_node.node.signing import Signer
from trip_node.node.tracing import trace

MODEL_SCHEMA, SEEN_SCHEMA = "examples.p2p.model/1", "examples.p2p.seen/1"
BEFORE, AFTER = "before", "after"
RAISED = 0.1
"""What an equivocator adds to its own contribution in its second report."""


@dataclass(frozen=True)
class Settings:
    """The settings of the federation, equal for all nodes, from federation.json."""

    rounds: int
    seed: int
    model: str  # of LEARNERS
    patience: float  # seconds that anything is waited for
    sizes: dict[str, int]  # examples of each node, by which models are weighed
    neighbours: dict[str, list[str]]
    equivocator: str  # a node's name, or empty
    equivocates_in: int  # a round


class Peer:
    """A node, which trains, exchanges models and reports, and traces contributions."""

    def __init__(self, folder: Path, name: str):
        self.settings = Settings(**json.loads((folder / "federation.json").read_text()))
        self.name, self._own = name, folder / name
        self._federation = Federation.read(folder / "keys.json")
        self._signer = Signer.at(self._own / "key")
        self._gossip = Gossip(self._federation, self.settings.rounds)
        with np.load(self._own / "data.npz", allow_pickle=False) as data:
            self._learner = LEARNERS[self.settings.model](dict(data))
        self._theta = self._learner.start()
        self._models: dict[tuple[int, str, str], Vector] = {}  # by round, client, when
        self._seen: dict[str, tuple[int, str]] = {}  # by client, how many reports and which
        self._changed = asyncio.Condition()
        self._left_out = 0  # models that came late or never
        self.refused: Counter[str] = Counter()
        self._links = Links(
            name,
            self._federation,
            self._signer,
            self.settings.neighbours[name],
            folder,
            self.settings.patience,
            self._got,
            self._look_again,
        )

    async def run(self) -> None:
        """Take part in all rounds, and write the contributions to files."""
        async with self._links.open():
            for round in range(1, self.settings.rounds + 1):
                await self._round(round)
            complete = await self._until(self._all_seen)
        self._write(complete)

    async def _round(self, round: int) -> None:
        before = self._theta
        place = [*self.settings.neighbours].index(self.name)
        rng = np.random.default_rng([self.settings.seed, place, round])
        after = await asyncio.to_thread(self._learner.train, before, rng)
        for when, theta in ((BEFORE, before), (AFTER, after)):
            self._models[round, self.name, when] = theta
            about = About(self._federation.name, self.name, round, when)
            self._links.send(MODEL, sealed(self._signer, MODEL_SCHEMA, about, to_bytes(theta)))
        await self._until(lambda: self._links.expected() <= {*self._received(round)})
        members = await asyncio.to_thread(self._members, round)  # others are left out
        self._left_out += 1 + len(self._links.neighbours) - len(members)
        models = {when: {j: [self._models[round, j, when]] for j in members} for when in WHEN}
        weights = {j: self.settings.sizes[j] for j in members}
        report = await asyncio.to_thread(
            self._evaluator().lcv,
            **models,
            weights=weights,
            round=round,
            sent_to=self._links.neighbours,
        )
        self._tell(report)
        shares = np.array([weights[j] for j in members]) / sum(weights.values())
        mixed = sum(s * self._models[round, j, AFTER] for s, j in zip(shares, members, strict=True))
        self._theta = np.asarray(mixed, np.float32)

    def _members(self, round: int) -> list[str]:
        """The node and the neighbours whose models of the round are here and can be mixed."""
        received = self._received(round)
        return self._evaluator().usable({j: [self._models[round, j, AFTER]] for j in received})

    def _received(self, round: int) -> list[str]:
        there = [self.name, *self._links.neighbours]
        return [j for j in there if all((round, j, when) in self._models for when in WHEN)]

    def _evaluator(self) -> LocalEvaluator:
        return LocalEvaluator(
            lambda model: -self._learner.loss(model[0]), self.name, self._federation.name
        )

    def _tell(self, report: Report) -> None:
        """Sign a report and send it; an equivocator tells every other neighbour another one."""
        told = [self._packet(report)]
        if (self.name, report.round) == (self.settings.equivocator, self.settings.equivocates_in):
            raised = (report.lcv[0] + RAISED, *report.lcv[1:])  # a client's own entry comes first
            told.append(self._packet(replace(report, lcv=raised)))
        for packet in told:
            try:
                self._gossip.take(packet)
            except Refused as refused:  # others refuse it, too
                self.refused[refused.reason] += 1
        for k, other in enumerate(self._links.neighbours):
            self._links.send_to(other, REPORT, told[k % len(told)])
        self._say_what_is_seen()

    def _packet(self, report: Report) -> bytes:
        message = report.to_json().encode()
        return Signed(message, base64.b64decode(self._signer.sign(message))).to_bytes()

    async def _got(self, other: str, kind: bytes, content: bytes) -> None:
        """What a neighbour sends; raises Broken, which ends the connection."""
        if kind == REPORT:
            try:
                if not self._gossip.take(content):
                    return
            except Refused as refused:  # an honest neighbour would not have passed it on
                self.refused[refused.reason] += 1
                raise Broken(refused.why) from refused
            self._links.send(REPORT, content, besides=other)
            self._say_what_is_seen()
        elif kind == MODEL:
            about, theta = opened(content, MODEL_SCHEMA, self._federation)
            if about.client != other or about.what not in WHEN:
                raise Broken("a model that is not the sender's")
            if 1 <= about.round <= self.settings.rounds:
                key = about.round, other, about.what
                self._models.setdefault(key, from_bytes(theta, self._theta.size))
        elif kind == SEEN:
            about, _ = opened(content, SEEN_SCHEMA, self._federation)
            if about.round <= self._seen.get(about.client, (0, ""))[0]:
                return
            self._seen[about.client] = about.round, about.what
            self._links.send(SEEN, content, besides=other)
        else:
            raise Broken("a second challenge")
        await self._look_again()

    async def _look_again(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _say_what_is_seen(self) -> None:
        """Tell all nodes of which reports this one knows, once it lacks none."""
        if any(self._gossip.missing(round) for round in self._gossip.rounds):
            return
        known = len(self._gossip.packets())
        self._seen[self.name] = known, self._gossip.digest()
        about = About(self._federation.name, self.name, *self._seen[self.name])
        self._links.send(SEEN, sealed(self._signer, SEEN_SCHEMA, about))

    def _all_seen(self) -> bool:
        """Whether all nodes say that they know the same."""
        digests = {digest for _, digest in self._seen.values()}
        return len(self._seen) == len(self._federation.clients) and len(digests) == 1

    async def _until(self, happened: Callable[[], bool]) -> bool:
        """Whether a condition becomes true within the time limit."""
        try:
            async with asyncio.timeout(self.settings.patience), self._changed:
                await self._changed.wait_for(happened)
        except TimeoutError:
            return False
        return True

    def _write(self, complete: bool) -> None:
        rows = trace(self._gossip)
        found: dict[str, Any] = {
            "names": rows.names,
            "phi": rows.phi.tolist(),
            "whole": rows.whole.tolist(),
            "all_nodes_say_the_same": complete,
            "digest": self._gossip.digest(),
            "frames_sent": self._links.frames_sent,
            "bytes_sent": self._links.bytes_sent,
            "left_out": self._left_out,
            "disputed": [asdict(one) for one in rows.disputed],
            "connections_broken": self._links.broken,
            "refused": dict(self.refused),
            "loss": self._learner.loss(self._theta),
        }
        (self._own / "phi.json").write_text(json.dumps(found))
        proofs = json.dumps(self._gossip.proofs(), indent=1)
        (self._own / "equivocations.json").write_text(proofs + "\n")
        lines = [
            one.to_csv(header=False)
            for round in self._gossip.rounds
            for one in self._gossip.reports(round).values()
        ]
        (self._own / "reports.csv").write_text(
            ",".join(COLUMNS) + "\n" + "".join(lines), newline=""
        )
        own = {
            when: np.stack([self._models[t, self.name, when] for t in self._gossip.rounds])
            for when in WHEN
        }
        np.savez(self._own / "models.npz", allow_pickle=False, **own)


WHEN = (BEFORE, AFTER)


async def _run(folder: Path, name: str) -> None:
    task = asyncio.current_task()
    assert task
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await Peer(folder, name).run()


def main(arguments: list[str]) -> int:
    """0 when the node is done, 130 where it was interrupted."""
    folder, name = arguments
    try:
        asyncio.run(_run(Path(folder), name))
    except asyncio.CancelledError:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
