"""Distributions in which examples differ by whose they are: by name, and by shifted features."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from trip_jax.data.dataset import Dataset, rows_by_name
from trip_jax.data.examples import in_unit_interval
from trip_jax.data.partition import DISTRIBUTIONS, Distribution, Division, iid
from trip_jax.settings import require
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.names import as_names, several
from trip_jax.settings.plurals import counted


@DISTRIBUTIONS("natural", reads=())
def natural(data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator) -> Division:
    """Every client owns the examples that bear its name."""
    n = len(ranks)
    if data.train_clients is None:
        raise InvalidSetting(
            "distribution=natural divides examples by the names of clients, and the data set has "
            "none: name their column by dataset.client, or choose another distribution."
        )
    owned = rows_by_name(data.train_clients)
    names = as_names("dataset.client", owned)
    require(
        len(names) == n,
        f"The examples are of {counted(len(names), 'client')} ({several(names)}), not of "
        f"n_clients={n}: set n_clients={len(names)}.",
    )
    return Division([owned[name] for name in names], names=names)


@DISTRIBUTIONS("shifted_features", reads=("order", "max_shift"))
def shifted_features(
    data: Dataset, ranks: np.ndarray, how: Distribution, rng: Generator
) -> Division:
    """All clients own equally many examples, shifted in each feature by a vector of the client's.

    The shift of a feature is drawn from the normal distribution, times the client's level and the
    feature's standard deviation. The shared test set is not shifted. Pixels in [0, 1] are clipped
    after it. Shifted examples are float32.
    """
    images = data.train_images
    require(
        images.dtype != np.int32,
        "distribution=shifted_features shifts numbers, not tokens: choose another.",
    )
    pixels = in_unit_interval(images)
    parts = iid(data, ranks, how, rng).parts
    levels = how.max_shift * (ranks / max(len(ranks) - 1, 1))
    shifted = images.astype(np.float32) / np.float32(255 if images.dtype == np.uint8 else 1)
    unit = shifted.std(axis=0, dtype=np.float64).astype(np.float32)
    for part, level in zip(parts, levels, strict=True):
        own = shifted[part] + np.float32(level) * unit * rng.standard_normal(unit.shape, np.float32)
        shifted[part] = np.clip(own, 0, 1) if pixels else own
    spoilt = replace(data, train_images=shifted)
    return Division(parts, spoilt, levels, "size of shifts, in standard deviations")
