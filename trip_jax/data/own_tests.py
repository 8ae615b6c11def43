"""The examples that clients are judged on: one test set, or some of each client's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from trip_jax.data.dataset import Dataset, rows_by_name
from trip_jax.data.federation import padded
from trip_jax.settings import require
from trip_jax.settings.names import several


@dataclass(frozen=True)
class TestExamples:
    """Test examples, and which of them each client is judged on; None: all clients on all."""

    images: np.ndarray
    labels: np.ndarray
    rows: Sequence[np.ndarray] | None = None  # [n] of the examples

    def whose(self) -> dict[str, Any]:
        """The fields of `ClientData` that say which rows are whose."""
        if self.rows is None:
            return {}
        tests, sizes = padded(self.rows)
        return {"tests": jnp.asarray(tests), "test_sizes": jnp.asarray(sizes)}


def by_names(dataset: Dataset, names: Sequence[str]) -> TestExamples:
    """Each client is judged on the test examples that bear its name.

    Raises:
        InvalidSetting: a client has none.
    """
    assert dataset.test_clients is not None
    rows = rows_by_name(dataset.test_clients)
    lacking = [name for name in names if name not in rows]
    require(
        not lacking,
        f"dataset.test=own finds no test examples of {several(lacking)}: give some, leave out "
        "dataset.test_size, or set dataset.test=shared.",
    )
    return TestExamples(dataset.test_images, dataset.test_labels, [rows[name] for name in names])


def held_out(
    dataset: Dataset,
    parts: Sequence[np.ndarray],
    share: float,
    names: Sequence[str] | None,
    seed: list[int],
) -> tuple[list[np.ndarray], TestExamples]:
    """What each client learns from, and the share of its examples that it is judged on.

    Both have at least one example.

    Args:
        parts: rows of the training set that each client owns.
        names: of the clients; None: they have numbers alone.

    Raises:
        InvalidSetting: a client has a single one.
    """
    rng = np.random.default_rng(seed)
    learned, judged = [], []
    for i, part in enumerate(parts):
        require(
            len(part) > 1,
            f"dataset.test=own needs two examples of every client, but client "
            f"{repr(names[i]) if names else i} has one: lower n_clients, raise dataset.train_size, "
            "or set dataset.test=shared.",
        )
        number = min(max(round(share * len(part)), 1), len(part) - 1)
        which = np.isin(np.arange(len(part)), rng.permutation(len(part))[:number])
        learned.append(part[~which])
        judged.append(part[which])
    return learned, TestExamples(dataset.train_images, dataset.train_labels, judged)
