"""The check by receivers on records: whose claims stand, by what those who got the models testify.

A client claims in its record of round t what its trained model says. Whoever received that model
testifies in its own record of round t + 1, by a seed that nobody knew before. A claim stands
unless more than half of the model's receivers testify otherwise. A receiver is who states that it
mixed the model, unless the sender states that it sent it none. Where none of these testifies, all
who state that they mixed the model are heard, so that nobody escapes by naming no receiver. What
others testify counts for nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
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
    distance: float  # of the claim from the testimony, as a part of the longer one
    receiver: str  # who testified


@dataclass(frozen=True)
class Checked:
    """What the check by receivers found in a run.

    Attributes:
        objections: the testimonies against claims that do not stand, by round and client.
        unconfirmed: rounds and clients on whose models nobody testified; their claims stand.
        open_rounds: rounds after which no record follows, so that nobody could testify on them.
    """

    objections: list[Objection] = field(default_factory=list)
    unconfirmed: list[tuple[int, str]] = field(default_factory=list)
    open_rounds: list[int] = field(default_factory=list)

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
    found, rounds = Checked(), {round for round, _ in records}
    for round in sorted(weights):
        if round + 1 not in rounds:
            found.open_rounds.append(round)
            continue
        of_both = _receivers(weights[round])
        of_one = _receivers({name: records[round, name].members for name in weights[round]})
        for client in sorted(weights[round]):
            claim, testified = records[round, client], False
            for receivers in (of_both[client], of_one[client]):
                heard = _heard(claim, receivers, records)
                against = [one for one, is_near in heard if not is_near]
                if 2 * len(against) > len(receivers):
                    found.objections.extend(against)
                if heard:
                    testified = True
                    break
            if not testified:
                found.unconfirmed.append((round, client))
    return found


def rounding_of(record: Predictions) -> float:
    """The rounding error of a record's logits, as a part of their length."""
    return ENCODINGS[record.encoding].rounding


def _heard(
    claim: Predictions, receivers: Iterable[str], records: Mapping[tuple[int, str], Predictions]
) -> list[tuple[Objection, bool]]:
    """What receivers testify on a claim, and whether it is near enough to agree."""
    found, trained = [], claim.logits[0]
    for name in receivers:
        later = records.get((claim.round + 1, name))
        if later is not None and claim.client in later.testimonies:
            distance = later.testimonies[claim.client].distance(trained)
            rounding = max(ROUNDING, rounding_of(claim), rounding_of(later))
            one = Objection(claim.round, claim.client, distance, name)
            found.append((one, distance <= rounding))
    return found


def _receivers(members: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """By client of a round who received its model, in order.

    Args:
        members: by receiver, whose models it mixed.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for receiver in sorted(members):
        for member in members[receiver]:
            if member != receiver:
                found[member].append(receiver)
    return found
