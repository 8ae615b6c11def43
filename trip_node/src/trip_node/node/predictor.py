"""A client's record of predictions, from models that it has and a predict function of its own."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trip_node.node.encodings import ENCODINGS
from trip_node.node.examples import places_of
from trip_node.node.predictions import Predictions
from trip_node.node.testimonies import Testimony
from trip_node.node.utility import BROKEN
from trip_node.node.weights import number, proportions
from trip_node.settings import at_least, choice, require
from trip_node.settings.errors import InvalidSetting


@dataclass(frozen=True)
class LocalPredictor:
    """Makes a client's records of predictions on the test set that all clients share.

    The object keeps its testimonies on the models that it received in a round for the record of the
    next, so that one object makes all records of a client.

    Attributes:
        predict: a model, in whichever form, to its logits on the test set, [N, C]: an array, a
            tensor or nested lists. Log-probabilities do as well.
        client: the client's name, among the names of weights.
        federation: goes into records, so that a signed one counts in this federation alone.
        encoding: "float16", or "int8" with a scale for each example.
        examples: None to tell of the whole test set; how many examples to draw from it; or their
            places in it. All clients use the same.
        seed: of that draw; all clients use the same.
    """

    predict: Callable[[Any], Any]
    client: str | int
    federation: str = ""
    encoding: str = "float16"
    examples: int | Sequence[int] | None = None
    seed: int = 0
    _heard: dict[int, "_Heard"] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        choice("encoding", self.encoding, tuple(ENCODINGS))
        at_least("seed", self.seed, 0)

    def record(
        self,
        trained: Any,
        following: Any,
        weights: Mapping[Any, float],
        *,
        round: int,
        steps: int = 1,
        start: Any = None,
        received: Mapping[Any, Any] | None = None,
        sent_to: Iterable[Any] | None = None,
    ) -> Predictions:
        """The record of the predictions of a client's models in a round.

        It holds the testimonies on what was received in the round before. Each received model costs
        one evaluation.

        Args:
            trained: the client's model after training, as it sent it.
            following: its next model, the mixture.
            weights: by member, the client itself included, by which models were mixed.
            round: its number.
            steps: minibatches that training took, where clients differ in it.
            start: the model from which all clients begin; given in the client's first round.
            received: by neighbour, its model after training as it came, on which the next record
                testifies; also of a neighbour whose model was not mixed. None: of nobody. Where
                `predict` fails for one, the next record is silent on it, with a warning.
            sent_to: to whom the client sent its trained model; others can't testify on it, nor mix
                it. None: the record does not say, and who says that it mixed the model is believed.

        Raises:
            InvalidSetting: logits that are not finite or not [N, C], weights that are no numbers,
                examples that the test set does not have.
        """
        proportion = proportions(weights)
        require(
            received is None or isinstance(received, Mapping),
            f"received must map clients to their models, not {str(received)[:50]!r}.",
        )
        models_of = _others(received, self.client, "received")
        sent = None if sent_to is None else tuple(_others(sent_to, self.client, "sent_to"))
        proportion |= dict.fromkeys((j for j in models_of if j not in proportion), 0.0)
        require(
            self.client in weights,
            f"weights lacks the client itself, {self.client!r}: it is a member of its "
            "neighbourhood, with weight 0 if need be.",
        )
        members = [self.client, *(j for j in proportion if j != self.client)]
        models = [trained, following] if start is None else [trained, following, start]
        logits = [self._logits(model) for model in models]
        shapes = sorted({one.shape for one in logits})
        require(
            len(shapes) == 1,
            f"predict gave logits of shapes {' and '.join(map(str, shapes))}: it must give [N, C] "
            "of one test set for every model.",
        )
        counts = {"round": number(round), "steps": number(steps)}
        for name, value in counts.items():
            require(isinstance(value, int), f"{name} must be an integer.")
        now: int = counts["round"]  # type: ignore[assignment]
        record = Predictions.of(
            str(self.client),
            now,
            tuple(map(str, members)),
            tuple(proportion[j] for j in members),
            np.stack(logits[:2]),
            start=None if start is None else logits[2],
            places=places_of(self.examples, self.seed, len(logits[0])),
            encoding=self.encoding,
            steps=counts["steps"],  # type: ignore[arg-type]
            federation=self.federation,
            sent_to=sent,
            testimonies=self._testimonies(now - 1),
        )
        heard = [self._testimony(str(j), models_of[j], shapes[0]) for j in models_of]
        testimonies = tuple(one for one in heard if one is not None)
        self._heard[now] = _Heard((shapes[0][0], shapes[0][1]), testimonies)
        for round_before in [t for t in self._heard if abs(t - now) > 1]:
            del self._heard[round_before]
        return record

    def closing(self, round: int) -> Predictions:
        """The record by which a client ends: what it testifies of its last round.

        Args:
            round: the number after that of the client's last record.

        Raises:
            InvalidSetting: this object's last record is of another round than the one before.
        """
        last = max(self._heard, default=None)
        require(
            last is not None and round == last + 1,
            f"round={round} must follow on the last round of which this LocalPredictor made a "
            "record.",
        )
        before = self._heard[round - 1]
        about = {"encoding": self.encoding, "federation": self.federation}
        testimonies = before.testimonies
        return Predictions.closing(str(self.client), round, before.shape, testimonies, **about)

    def _testimonies(self, round: int) -> tuple[Testimony, ...]:
        return self._heard[round].testimonies if round in self._heard else ()

    def _testimony(self, name: str, model: Any, shape: tuple[int, ...]) -> Testimony | None:
        """What a received model says; one whose logits are none of this shape says nothing.

        None if `predict` fails: the fault may be the receiver's.
        """
        try:
            logits = self._logits(model)
        except BROKEN:
            raise
        except InvalidSetting:  # what `predict` gave is not finite, say
            return Testimony.of(name, None)
        except Exception as error:  # of any framework
            warnings.warn(
                f"predict fails for the model received from {name!r} ({error}), on which the next "
                "record does not testify: see that it is in the form of the client's own model.",
                stacklevel=3,
            )
            return None
        if logits.shape != shape:
            return Testimony.of(name, None)
        places = places_of(self.examples, self.seed, len(logits))
        some = logits[None] if places is None else logits[None, places]
        return Testimony.of(name, ENCODINGS[self.encoding].rounded(some))

    def _logits(self, model: Any) -> np.ndarray:
        """A model's logits less each example's mean over classes, which softmax ignores."""
        given = self.predict(model)
        if hasattr(given, "detach"):  # a tensor of PyTorch
            given = given.detach().cpu().float()
        try:
            with np.errstate(over="ignore"):  # which leaves what is refused below
                logits = np.asarray(given).astype(np.float32, casting="same_kind")
        except (TypeError, ValueError) as error:
            raise InvalidSetting(f"predict must give an array of logits ({error}).") from error
        require(
            logits.ndim == 2 and len(logits) > 0 and logits.shape[1] > 1,
            f"predict must give logits [N, C] of N examples and two classes or more, not of shape "
            f"{logits.shape}.",
        )
        require(
            bool(np.isfinite(logits).all()),
            "predict gave logits that are not finite: report no model that has diverged.",
        )
        return np.asarray(logits - logits.mean(axis=1, keepdims=True))


@dataclass(frozen=True)
class _Heard:
    """What a client heard of its neighbours' models in a round, and the shape of logits."""

    shape: tuple[int, int]  # [N, C]
    testimonies: tuple[Testimony, ...]


def _others(given: Any, client: Any, name: str) -> dict[Any, Any]:
    """By name without the client itself; a mapping's values, or None."""
    listed = () if given is None else given
    require(
        isinstance(listed, Iterable) and not isinstance(listed, str),
        f"{name} must name other clients, not {str(given)[:50]!r}.",
    )
    values = listed if isinstance(listed, Mapping) else dict.fromkeys(listed)
    return {j: one for j, one in values.items() if j != client}
