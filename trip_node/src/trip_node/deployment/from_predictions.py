"""Contributions from records of predictions, while rounds of a federation close.

The rounds so far are replayed from their beginning, as `trip-node coordinate --predictions` replays
a folder of the same records. Rounds that close meanwhile are replayed together afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from trip_node.attribution.predictions import by_predictions, planned_bytes
from trip_node.attribution.utilities import Utility
from trip_node.deployment.attributors import OfRound
from trip_node.deployment.receivers import Checked
from trip_node.deployment.recorded import FEWER, Files, run_of_records
from trip_node.deployment.tracing import EVENTS, Traced, Unconfirmed, nothing_yet
from trip_node.node.admission import Federation
from trip_node.node.exchanges import Disputed, weights_stated_by_both
from trip_node.node.game import Game
from trip_node.node.predictions import Predictions
from trip_node.node.predictions_form import Form
from trip_node.node.testimonies import BYTES as TESTIMONY_BYTES
from trip_node.settings import require
from trip_node.settings.capacity import require_capacity
from trip_node.settings.plurals import counted

MOST_BYTES = 2**24
"""The largest record that the service takes."""


@dataclass(frozen=True)
class ReplaySettings:
    """The settings of `by_predictions`, by which records are replayed.

    Attributes:
        labels: of all examples of the shared test set.
        utility: the utility by which predictions are judged.
        budget: coalitions that are replayed.
        unit: the unit of the utility, for the page.
        check: whether claims are held against testimonies.
    """

    labels: np.ndarray
    utility: Utility
    budget: int
    unit: str = "the unit of the utility"
    check: bool = True


class Stopped(Exception):
    """Ends a replay, because the service ends."""


class FromPredictions:
    """Replays all closed rounds from clients' signed records of predictions.

    Raises:
        InvalidSetting: the federation states no form of records, or one that is too large; labels
            are of another test set; or the budget is too small for its clients.
    """

    name = "predictions"

    def __init__(self, federation: Federation, replay: ReplaySettings):
        self._federation, self._replay, self.unit = federation, replay, replay.unit
        form, labels, n = federation.predictions, replay.labels, len(federation.clients)
        require(
            form is not None,
            "The file of keys must state predictions, such as "
            '{"test_set": 500, "classes": 10}, where the service takes records.',
        )
        assert form is not None
        self.most_bytes, self.units = form.most_bytes + TESTIMONY_BYTES * n, form.units
        require_labels(labels, form)
        require(
            self.most_bytes <= MOST_BYTES,
            f"A record would have up to {self.most_bytes:,} bytes, and the service takes "
            f"{MOST_BYTES:,}: tell of fewer examples, or in int8.",
        )
        Game.of(n, "antithetic", replay.budget, "shapley", np.random.default_rng(0))
        self._size = len(form.places) * form.classes
        self._files: Files = {}
        self._read = 0  # rounds whose records are in memory
        self._lock, self._replayed, self._of_rounds = Lock(), 0, 0
        self._stopped = False
        self._require_room(1)

    def admit(self, message: bytes, signature: str | None) -> Predictions:
        return self._federation.admit_predictions(message, signature)

    def nothing_yet(self) -> Traced:
        return nothing_yet(list(self._federation.clients))

    def trace(self, before: Traced, closed: int, of_round: OfRound) -> Traced:
        known = len({round for round, _ in self._files})
        self._require_room(known + closed - self._read)  # before records are read
        for t in range(self._read, closed):
            round = self._federation.first_round + t
            for one in of_round(round):
                place = f"the record of client {one.client!r} on round {round}"
                self._files[round, one.client] = place, one
            self._read = t + 1
        if all(record.closes for _, record in self._files.values()):
            return replace(before, n_rounds=closed)
        run = run_of_records(
            self._files,
            clients=self._federation.clients,
            missing="zero",
            check=self._replay.check,
        )
        labels = self._replay.labels[run.places]
        self._replayed, self._of_rounds = 0, closed
        try:
            found = by_predictions(run.recorded, labels, self._counted, budget=self._replay.budget)
        finally:
            self._of_rounds = 0
        about = run.checked or Checked()
        return replace(
            before,
            checked=run.checked,
            flags=about.objections,
            unconfirmed=[Unconfirmed(*place) for place in about.unconfirmed],
            n_disputed=len(run.disputed),
            disputed=tuple(run.disputed[-EVENTS:]),
            phi=found.phi,
            phi_error=found.phi_error,
            score_error=found.score_error,
            n_rounds=closed,
        )

    def disputed(self, messages: Sequence[Predictions]) -> list[Disputed]:
        return weights_stated_by_both({one.client: one for one in messages if not one.closes})[1]

    def progress(self) -> dict[str, Any] | None:
        """The rounds that are replayed now, and the share of coalitions that is done."""
        if not self._of_rounds:
            return None
        n = len(self._federation.clients)
        share = self._replayed / (n * min(2 ** min(n, 62), self._replay.budget))
        return {"rounds": self._of_rounds, "share": round(min(share, 1.0), 3)}

    def stop(self) -> None:
        self._stopped = True

    def _require_room(self, n_rounds: int) -> None:
        """Refuse rounds that memory can't hold; raises InvalidSetting."""
        n = len(self._federation.clients)
        require_capacity(planned_bytes(n_rounds, n, self._size), FEWER)

    def _counted(self, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The utility of predictions, with a count of how many were evaluated for `progress`."""
        if self._stopped:
            raise Stopped
        found = self._replay.utility(logits, labels)
        with self._lock:
            self._replayed += found.size
        return found


def require_labels(labels: np.ndarray, form: Form) -> None:
    """Refuse labels of another test set than the form states; raises InvalidSetting."""
    require(
        len(labels) == form.test_set,
        f"--labels has {counted(len(labels), 'label')}, and the file of keys states a test set of "
        f"{counted(form.test_set, 'example')}: give the labels of all of it.",
    )
    require(
        bool(((labels >= 0) & (labels < form.classes)).all()),
        f"--labels must be integers from 0 to {form.classes - 1}.",
    )
