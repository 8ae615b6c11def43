"""The check by receivers on records: whose claims stand, by what those who got the models testify.

A client claims in its record of round t what its trained model says. Whoever received that model
testifies in its own record of round t + 1, by a seed that nobody knew before. A claim stands
unless more than half of the model's receivers testify otherwise. A receiver is who states that it
mixed the model, unless the sender states that it sent it none; all else that is testified counts
for nothing.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from trip_node.node.encodings import ENCODINGS
from trip_node.node.predictions import Predictions

ROUNDING = 2**-8
"""The largest relative difference of one model's projections between machines."""

Weights = Mapping[int, Mapping[str, Mapping[str, float]]]
"""By round and client, the weights by which the client mixed models, its own among them; no
client is there in a round of which it has no record but a closing one."""


@dataclass(frozen=True)
class Objection:
    """A receiver's testimony against a claim that does not stand."""

    round: int
    client: str  # whose claim it is
    distance: float  # of the claim from the testimony, as a part of the testimony's length
    receiver: str  # who testified


@dataclass(frozen=True)
class Checked:
    """What the check by receivers found in a run.

    Attributes:
        objections: the testimonies against claims that do not stand, by round and client.
        unconfirmed: rounds and clients on whose models nobody testified; their claims stand.
        bounded: rounds and clients whose next model's claim gave way to the mixture.
    """

    objections: list[Objection] = field(default_factory=list)
    unconfirmed: list[tuple[int, str]] = field(default_factory=list)
    bounded: list[tuple[int, str]] = field(default_factory=list)

    @property
    def refuted(self) -> list[tuple[int, str]]:
        """Rounds and clients whose claim on the trained model does not stand."""
        return list(dict.fromkeys((one.round, one.client) for one in self.objections))


def checked(records: Mapping[tuple[int, str], Predictions], weights: Weights) -> Checked:
    """Hold the claims of all rounds against what receivers testify.

    Args:
        records: by round and client, closing records among them.
        weights: of all rounds, without disputed exchanges.
    """
    found = Checked()
    for round in sorted(weights):
        receivers = _receivers(weights[round])
        for client in sorted(weights[round]):
            claim = records[round, client]
            trained, rounding = claim.logits[0], rounding_of(claim)
            against, testified = [], 0
            for name in receivers[client]:
                later = records.get((round + 1, name))
                if later is None or client not in later.testimonies:
                    continue
                testified += 1
                distance = later.testimonies[client].distance(trained)
                if distance > max(ROUNDING, rounding, rounding_of(later)):
                    against.append(Objection(round, client, distance, name))
            if 2 * len(against) > len(receivers[client]):
                found.objections.extend(against)
            if not testified:
                found.unconfirmed.append((round, client))
    return found


def rounding_of(record: Predictions) -> float:
    """The rounding error of a record's logits, as a part of their length."""
    return ENCODINGS[record.encoding].rounding


def _receivers(weights: Mapping[str, Mapping[str, float]]) -> dict[str, list[str]]:
    """By client of a round who received its model, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for receiver in sorted(weights):
        for member in weights[receiver]:
            if member != receiver:
                found[member].append(receiver)
    return found
