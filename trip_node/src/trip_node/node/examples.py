"""The examples of the shared test set that records of predictions cover."""

from collections.abc import Sequence

import numpy as np

from trip_node.settings import require


def places_of(examples: int | Sequence[int] | None, seed: int, n: int) -> np.ndarray | None:
    """The places of the D chosen examples among n, in order [D]; None for all.

    Args:
        examples: None for all, how many to draw, or their places in any order.
        seed: the seed by which examples are drawn.

    Raises:
        InvalidSetting: there are not so many examples, or not these places.
    """
    if examples is None:
        return None
    if isinstance(examples, int):
        require(
            0 < examples <= n,
            f"examples={examples} must be from 1 to the {n} of the test set.",
        )
        return np.sort(np.random.default_rng(seed).choice(n, examples, replace=False))
    places = np.unique(np.asarray(examples))
    require(
        places.dtype.kind in "iu"
        and len(places) == len(examples) > 0
        and places[0] >= 0
        and places[-1] < n,
        f"examples must be different places from 0 to {n - 1}.",
    )
    return places
