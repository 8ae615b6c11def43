"""What a model must answer: logits of all classes, of which every utility makes a number."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.learning.evaluation import judged
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.learner import Learner
from trip_jax.learning.metrics import metric_errors, require_takes_real
from trip_jax.learning.targets import NUMBERS
from trip_jax.learning.utilities import is_of_sets, terms
from trip_jax.settings import require


def require_outputs(learner: Learner) -> None:
    """Refuse a model that gives no logits, or too few, or that a utility can't judge.

    Raises:
        InvalidSetting: of the model's outputs, or of a metric.
    """
    data, model = learner.data, learner.model
    examples = jax.ShapeDtypeStruct((3, *model.shape), model.dtype)
    with model.model.noting(model.shape, model.dtype):
        logits, *_ = (
            jax.eval_shape(form, model, model.theta, examples)
            for form in (FlatModel.apply, FlatModel.predict, FlatModel.learn, FlatModel.trains)
        )
    _require_utility(learner, logits)
    if model.targets.task == NUMBERS:
        return
    largest = max(np.asarray(labels).max() for labels in (data.labels, data.test_labels))
    require(
        largest < logits.shape[-1],
        f"The model tells {logits.shape[-1]} classes apart, but labels go up to {largest}: give "
        "it more outputs.",
    )


def _require_utility(learner: Learner, logits: jax.ShapeDtypeStruct) -> None:
    """Refuse a metric of the user's own that fails, or gives no number; it is traced once."""
    utility = learner.third_utility
    of_sets = [name for name in terms(utility) if is_of_sets(name)]
    for name in of_sets if learner.own_tests else ():
        require_takes_real(name)
    if of_sets:
        n = math.prod(logits.shape[:-1])  # examples, or their tokens
        logits = jax.ShapeDtypeStruct((n, logits.shape[-1]), logits.dtype)
        labels = jax.ShapeDtypeStruct((n,), jnp.int32)
        with metric_errors(utility):
            jax.eval_shape(partial(judged, third_utility=utility), logits, labels)
