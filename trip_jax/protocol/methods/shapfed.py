"""ShapFed: class by class, how alike last layers are.

Tastan, Fares, Aremu, Horvath, Nandakumar, "Redefining Contributions: Shapley-Driven Federated
Learning", IJCAI 2024. With theta[c] the weights and the bias of class c in the last layer:

    psi_i(j) = mean over classes c of cos(theta_j^(t+1/2)[c], theta_i^(t+1)[c])

A neighbourhood stands for the paper's server. The paper's authors compare parameters, as here, and
keep a moving average over rounds (factor .95), which the rounds of Eq. 3 stand for. A cosine has
no unit, and is not weighted by W_ij: Eq. 3 adds it as it is.

Cost: m times the number of classes cosines of one row; the next model is evaluated once to say how
good it is. What is sent: nothing beside the models of learning; 4 m bytes to the coordinator, which
sees no model. In the paper the coordinator is the server that sees all last layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict
from jax import Array
from jaxtyping import Float

from trip_jax.data.federation import as_seen
from trip_jax.learning.learner import Learner
from trip_jax.protocol.methods.facts import REPORT, Costs, Unit
from trip_jax.protocol.methods.neighbourhood import ByNeighbourhood, Neighbourhood, cosines
from trip_jax.settings.errors import InvalidSetting


@dataclass(frozen=True)
class ShapFed(ByNeighbourhood):
    """A member is worth how alike its last layer and the next model's are."""

    label = "ShapFed"
    unit = Unit("cosines summed over rounds")
    costs = Costs(n_bytes=REPORT)
    sends_before = False
    needs_classes = True

    def of(self, near: Neighbourhood, learner: Learner) -> Float[Array, "M 1"]:
        kernel, bias = last_layer(learner)

        def rows(theta: Float[Array, " P"]) -> Float[Array, "classes row"]:
            parameters = _named(learner.model.unravel(theta))
            return jnp.concatenate([parameters[kernel], parameters[bias][None]]).T

        members = jax.vmap(rows)(near.trained).swapaxes(0, 1)
        return cosines(members, rows(near.mixed)).mean(axis=0)[:, None]


def last_layer(learner: Learner) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the only dense layer as wide as there are classes: its kernel and its bias.

    Raises:
        InvalidSetting: there is none, or several.
    """
    model = learner.model
    logits = jax.eval_shape(
        lambda theta, images: model.apply(theta, as_seen(images[:1])),
        model.theta,
        learner.data.test_images,
    )
    parameters = jax.eval_shape(model.unravel, model.theta)
    shapes = {name: one.shape for name, one in _named(parameters).items()}
    kernels = [
        (*layer, kernel)
        for *layer, kernel in shapes
        if kernel == "kernel" and len(shape := shapes[*layer, kernel]) == 2
        if shape[1:] == logits.shape[1:] == shapes.get((*layer, "bias"))
    ]
    if len(kernels) != 1:
        raise InvalidSetting(
            "contribution.method=shapfed compares last layers, and needs a network with one dense "
            f"layer as wide as there are classes, not {len(kernels)}: change model.hidden, or "
            "set contribution.method=cgsv."
        )
    (kernel,) = kernels
    return kernel, (*kernel[:-1], "bias")


def _named(parameters: Any) -> Mapping[tuple[str, ...], Any]:
    """Parameters by their path; none where a model has no names for them."""
    return flatten_dict(parameters) if isinstance(parameters, Mapping) else {}
