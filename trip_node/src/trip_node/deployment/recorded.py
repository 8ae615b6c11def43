"""Clients' records of predictions put together to one run, which can be replayed."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from trip_node.attribution.confirmed import confirmed
from trip_node.attribution.predictions import Recorded, planned_bytes
from trip_node.deployment.receivers import Checked, Weights, checked
from trip_node.node.exchanges import Disputed, weights_stated_by_both
from trip_node.node.predictions import Predictions
from trip_node.node.weights import shares
from trip_node.settings import require
from trip_node.settings.capacity import require_capacity
from trip_node.settings.names import order_of

APART = 0.01
"""How far a client's first logits may be from the median of all clients', as a part of its size."""

FEWER = "tell of fewer examples, or give records of fewer clients or rounds"


@dataclass(frozen=True)
class RecordedRun:
    """A run that clients' records of predictions describe.

    Attributes:
        recorded: the predictions of all clients in all rounds.
        names: of the n clients: integers by value, then strings.
        rounds: the numbers of the T rounds.
        test_set: how many examples the shared test set has.
        places: which of these examples the records predict, by their place in it [D].
        disputed: exchanges that one end alone states; they are left out of `recorded.mixing`.
        checked: what receivers' testimonies came to; None: there are none, or they were ignored.
    """

    recorded: Recorded
    names: list[str]
    rounds: list[int]
    test_set: int
    places: np.ndarray
    disputed: list[Disputed] = field(default_factory=list)
    checked: Checked | None = None


Files = dict[tuple[int, str], tuple[str, Predictions]]
"""Records by round and client, with the names by which messages call them."""


def run_of_records(
    files: Files,
    *,
    clients: Collection[str] = (),
    missing: str = "refuse",
    check: bool = True,
) -> RecordedRun:
    """The run that records describe, whatever their order.

    Args:
        files: at least one, all of the same examples.
        clients: who takes part, beside those that records name.
        missing, check: the arguments of `read_predictions`.

    Raises:
        InvalidSetting: records contradict one another, lack one, or are too many for the memory.
    """
    training = {place: one for place, one in files.items() if not one[1].closes}
    require(bool(training), "There are closing records alone: add those of rounds.")
    first = next(iter(training.values()))[1]
    names = sorted({name for _, name in files} | _members(training) | {*clients}, key=order_of)
    rounds = sorted({round for round, _ in training})
    _require_all(training, names, rounds, missing)
    size = first.examples * first.classes
    require_capacity(planned_bytes(len(rounds), len(names), size), FEWER)
    weights, disputed = _weights(training)
    recorded, about = _recorded(training, names, rounds, weights), (first.test_set, first.places)
    run = RecordedRun(recorded, names, rounds, *about, disputed)
    if check and any(record.testified for _, record in files.values()):
        found = checked({place: record for place, (_, record) in files.items()}, weights)
        _confirm(run, found)
        return replace(run, checked=found)
    return run


def _members(files: Files) -> set[str]:
    return {name for _, record in files.values() for name in record.members}


def _weights(training: Files) -> tuple[Weights, list[Disputed]]:
    """The weights of all rounds without disputed exchanges, and these."""
    of_rounds: dict[int, dict[str, Predictions]] = defaultdict(dict)
    for (round, name), (_, record) in training.items():
        of_rounds[round][name] = record
    both = {round: weights_stated_by_both(of_round) for round, of_round in of_rounds.items()}
    disputed = [one for round in sorted(both) for one in both[round][1]]
    return {round: weights for round, (weights, _) in both.items()}, disputed


def _require_all(files: Files, names: list[str], rounds: list[int], missing: str) -> None:
    """Refuse rounds and clients without a record, unless these count as away."""
    if missing == "zero":
        return
    way_out = "add its record, or take the client to have kept its model with --missing zero."
    for before, after in pairwise(rounds):
        require(after == before + 1, f"No client has a record of round {before + 1}: {way_out}")
    for round in rounds:
        for name in names:
            require(
                (round, name) in files,
                f"Client {name!r} has no record of round {round}: {way_out}",
            )


def _recorded(files: Files, names: list[str], rounds: list[int], weights: Weights) -> Recorded:
    place = {name: i for i, name in enumerate(names)}
    n_rounds, n = len(rounds), len(names)
    start = _start(files)
    mixing = np.tile(np.eye(n), (n_rounds, 1, 1))
    present = np.zeros((n_rounds, n), bool)
    said = np.empty((2, n_rounds, n, *start.shape), np.float32)
    before = np.broadcast_to(start, (n, *start.shape))
    for t, round in enumerate(rounds):
        said[:, t] = before
        for name, i in place.items():
            if (round, name) not in files:
                continue
            _, record = files[round, name]
            said[:, t, i], present[t, i] = record.logits, True
            mixing[t, i] = 0
            share = shares(dict(sorted(weights[round][name].items())))  # sums in any order differ
            mixing[t, i, [place[name] for name in share]] = list(share.values())
        before = said[1, t]
    return Recorded(start, said[0], said[1], mixing, present)


def _confirm(run: RecordedRun, found: Checked) -> None:
    """Put what stands after the check in place of claims."""
    recorded = run.recorded
    place = {client: i for i, client in enumerate(run.names)}
    time = {round: t for t, round in enumerate(run.rounds)}
    shape = (*recorded.present.shape, -1)
    trained, following = recorded.trained.reshape(shape), recorded.following.reshape(shape)
    trained[~recorded.present] = np.nan  # a client that is away keeps what stands of before
    for round, client in found.refuted:
        trained[time[round], place[client]] = np.nan
    confirmed(trained, following, recorded.mixing, recorded.start.ravel())


def _start(files: Files) -> np.ndarray:
    """F^0: the median of the first logits that clients state, on which most of them must agree."""
    stated: dict[str, np.ndarray] = {}
    for round, name in sorted(files):
        _, record = files[round, name]
        if record.begins:
            stated.setdefault(name, record.start)  # the first that a client states
    require(
        bool(stated),
        "No record tells of the model from which all begin: give it as start= in each client's "
        "first round.",
    )
    every = np.stack(list(stated.values()))
    middle = np.asarray(np.median(every, axis=0))
    near = abs(every - middle).max(axis=(1, 2)) <= APART * max(abs(middle).max(), 1.0)
    strange = next((name for name, same in zip(stated, near, strict=True) if not same), "")
    require(
        2 * near.sum() > len(every),
        f"Clients begin from different models, {strange!r} among them: all must begin from one.",
    )
    return middle
