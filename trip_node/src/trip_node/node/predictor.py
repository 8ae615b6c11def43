"""A client's record of predictions, from models that it has and a predict function of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trip_node.node.encodings import ENCODINGS
from trip_node.node.examples import places_of
from trip_node.node.predictions import Predictions
from trip_node.node.weights import number, proportions
from trip_node.settings import at_least, choice, require
from trip_node.settings.errors import InvalidSetting


@dataclass(frozen=True)
class LocalPredictor:
    """Makes a client's records of predictions on the test set that all clients share.

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
    ) -> Predictions:
        """The record of the predictions of a client's models in a round.

        Args:
            trained: the client's model after training, as it sent it.
            following: its next model, the mixture.
            weights: by member, the client itself included, by which models were mixed.
            round: its number.
            steps: minibatches that training took, where clients differ in it.
            start: the model from which all clients begin; given in the client's first round.

        Raises:
            InvalidSetting: logits that are not finite or not [N, C], weights that are no numbers,
                examples that the test set does not have.
        """
        proportion = proportions(weights)
        require(
            self.client in weights,
            f"weights lacks the client itself, {self.client!r}: it is a member of its "
            "neighbourhood, with weight 0 if need be.",
        )
        members = [self.client, *(j for j in weights if j != self.client)]
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
        return Predictions.of(
            str(self.client),
            counts["round"],  # type: ignore[arg-type]
            tuple(map(str, members)),
            tuple(proportion[j] for j in members),
            np.stack(logits[:2]),
            start=None if start is None else logits[2],
            places=places_of(self.examples, self.seed, len(logits[0])),
            encoding=self.encoding,
            steps=counts["steps"],  # type: ignore[arg-type]
            federation=self.federation,
        )

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
