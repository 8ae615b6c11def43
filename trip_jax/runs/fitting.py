"""Whether arrays are the state of a given run, by their names, types and shapes."""

from dataclasses import fields
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from trip_jax.learning.utilities import UTILITIES
from trip_jax.protocol.state import Record
from trip_jax.results.result import Timing
from trip_jax.simulation import Simulation

_LATER_STATE = ("channel", "weighing", "earlier", "earlier_phi")
_NEW_NAMES = {"records/lcv_error": "records/lcv_standard_error"}
_OPPOSITES = {
    "records/accepted": "records/filtered",
    "records/arrived": "records/unsent",
    "state/earlier/arrived": "state/earlier/unsent",
}
"""Older names of arrays, by which the second kind say the opposite."""


def by_new_names(arrays: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's arrays by the names of this version, if an older one wrote them."""
    named = {_NEW_NAMES.get(it, it): array for it, array in flatten_dict(arrays, sep="/").items()}
    for old, new in _OPPOSITES.items():
        if np.asarray(named.get(old)).dtype.kind == "b":
            named[new] = ~named.pop(old)
    return unflatten_dict(named, sep="/")


def completed(arrays: dict[str, Any], simulation: Simulation) -> dict[str, Any]:
    """A checkpoint's arrays with those that version 0.1.0 did not save.

    Its clients remembered nothing beyond their models, and contributions were inherited by the
    shares of the graph's weights.
    """
    named = flatten_dict(by_new_names(arrays), sep="/")
    parts = (f"state/{name}" for name in _LATER_STATE)
    absent = dict.fromkeys(
        part for part in parts if not any(name.startswith(f"{part}/") for name in named)
    )
    if "records/shares" not in named and np.ndim(named.get("records/lcv")) > 0:
        rounds = range(len(named["records/lcv"]))
        weights = np.array([simulation.topology.at(t).weights for t in rounds])
        shares = weights / weights.sum(axis=-1, keepdims=True)
        absent |= {"records/kept": None, "records/shares": shares.astype(np.float32)}
    return unflatten_dict(absent | named, sep="/")


def fits(arrays: dict[str, Any], simulation: Simulation) -> bool:
    """Whether a checkpoint's arrays can be those of a run of the simulation after some round."""
    given = flatten_dict(arrays, sep="/")
    done = np.shape(given.get("timings/training"))
    expected = _state(simulation) | {f"timings/{one.name}": ("n", done) for one in fields(Timing)}
    if any(name.startswith("records/") for name in given):  # else they are in files of their own
        size = {"n": simulation.n, "U": len(UTILITIES)}
        size["M"] = simulation.topology.graphs.mask.shape[-1]
        expected |= {"records/kept": None}
        for one in fields(Record):
            if axes := one.metadata.get("axes"):
                shape = *done, *(size[axis] for axis in axes)
                expected[f"records/{one.name}"] = one.metadata["kind"], shape
    found = {name: _outline(array, name.startswith("state/")) for name, array in given.items()}
    return len(done) == 1 and found == expected and int(given["state/round"]) == done[0]


def _state(simulation: Simulation) -> dict[str, Any]:
    """Types and shapes of the state of a run, clients in their order."""
    start = jax.eval_shape(simulation.start)
    models = jax.ShapeDtypeStruct((simulation.n, *start.models.shape[1:]), start.models.dtype)
    key = jax.eval_shape(jax.random.key_data, start.key)
    state = flatten_dict({"state": start.saved() | {"models": models, "key": key}}, sep="/")
    return {name: _outline(array, exactly=True) for name, array in state.items()}


def _outline(array: Any, exactly: bool) -> Any:
    """The type and shape of an array; unless types must be exact, integers and floats are alike."""
    if array is None:
        return None
    kind = {"f": "n", "i": "n"}.get(array.dtype.kind, array.dtype.kind)
    return (str(array.dtype) if exactly else kind), tuple(array.shape)
