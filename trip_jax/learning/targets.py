"""What models answer: the class of an example, one class for each of its tokens, or numbers.

The labels themselves say which: integers [N], integers [N, T] in which -1 is padding, or floats.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jaxtyping import Bool, Float

from trip_jax.settings import require
from trip_jax.settings.declared import described

CLASSES, TOKENS, NUMBERS = "classes", "tokens", "numbers"


@dataclass(frozen=True)
class Targets:
    """What the labels of a federation are.

    Attributes:
        task: `CLASSES`, `TOKENS` or `NUMBERS`.
        shape: the shape of the label of one example.
    """

    task: str = CLASSES
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, labels: Any) -> "Targets":
        """The targets of a data set whose labels are an array [N, ...]."""
        task = NUMBERS if labels.dtype.kind == "f" else TOKENS if labels.ndim > 1 else CLASSES
        return cls(task, tuple(labels.shape[1:]))

    def n_outputs(self, *labels: Any) -> int:
        """How many outputs a model has: as many as there are classes, or numbers."""
        if self.task == NUMBERS:
            return self.shape[0] if self.shape else 1
        return 1 + max(int(np.asarray(one).max()) for one in labels)

    def outputs(self, found: Any, n_examples: int) -> Array:
        """What a model gives, in float32; anything else is refused while the model is traced.

        Returns:
            logits [B, C] or [B, T, C], or numbers in the shape of labels.
        """
        given = (
            f"{found.dtype}{list(found.shape)}" if isinstance(found, Array) else described(found)
        )
        wanted, wide = self.shape, ""
        if self.task == NUMBERS:
            fits = isinstance(found, Array) and found.shape in (
                (n_examples, *wanted),
                (n_examples, *(wanted or (1,))),
            )
            wide = f"numbers {['B', *(wanted or (1,))]}"
        else:
            start = (n_examples, *wanted)
            fits = isinstance(found, Array) and found.shape[:-1] == start
            wide = f"logits {['B', *wanted, 'classes']}"
        require(
            fits and jnp.issubdtype(found.dtype, jnp.floating),
            f"Model.apply must give one array of {wide.replace(chr(39), '')} in floats, and gave, "
            f"of {n_examples} examples, {given}.",
        )
        outputs: Array = found.astype(jnp.float32)
        return outputs.reshape(n_examples, *wanted) if self.task == NUMBERS else outputs

    def loss(
        self, outputs: Array, labels: Array, real: Float[Array, " B"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean loss of a minibatch, and how much it weighs in the mean of several.

        It is the cross-entropy of examples or of tokens in nats, or the squared error.

        Args:
            real: 1 for examples, 0 for padding.
        """
        outputs = outputs.astype(jnp.float32)
        if self.task == NUMBERS:
            errors = (outputs.reshape(labels.shape) - labels) ** 2
            losses = errors.reshape(len(labels), -1).mean(axis=1)
        elif self.task == TOKENS:
            there = (labels >= 0) * real[:, None]
            of_tokens = optax.softmax_cross_entropy_with_integer_labels(
                outputs, jnp.maximum(labels, 0)
            )
            return jnp.sum(of_tokens * there) / jnp.maximum(there.sum(), 1), real.sum()
        else:
            losses = optax.softmax_cross_entropy_with_integer_labels(outputs, labels)
        return jnp.sum(losses * real) / jnp.sum(real), real.sum()


def by_token(
    logits: Array, labels: Array, real: Bool[Array, " B"] | None
) -> tuple[Array, Array, Bool[Array, " L"] | None]:
    """Logits [L, C], labels [L] and which of them are real: one row for each token.

    Those of examples stay as they are.
    """
    if labels.ndim == 1:
        return logits, labels, real
    is_token = labels >= 0 if real is None else (labels >= 0) & real[:, None]
    rows = logits.reshape(-1, logits.shape[-1])
    return rows, jnp.maximum(labels, 0).ravel(), is_token.ravel()
