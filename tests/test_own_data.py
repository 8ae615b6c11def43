"""A user's own data: how many classes there are, and what is said of data that say little."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import trip_jax as tj
from tests.conftest import tiny_data
from trip_jax.data.federation import as_client_data
from trip_jax.learning.flat_model import FlatModel
from trip_jax.learning.models import as_model
from trip_jax.settings.errors import InvalidSetting, Notice

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 4)).astype(np.float32)


def own(
    labels: Sequence[int] | np.ndarray, test_labels: Any = None, n_classes: int | None = None
) -> tj.Dataset:
    """Examples with these labels, repeated; those of the test set are the same unless given."""
    train = np.resize(labels, 48)
    test = np.resize(labels if test_labels is None else test_labels, 12)
    how = {} if n_classes is None else {"n_classes": n_classes}
    return tj.Dataset(FEATURES[:48], train, FEATURES[48:], test, **how)


def said(action: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What it gives, and its notices."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action()
    assert all(issubclass(one.category, Notice) for one in caught)
    return result, [str(one.message) for one in caught]


@pytest.mark.parametrize(
    ("labels", "test_labels", "n_classes", "words"),
    [
        ([0, 1], None, 2, ""),
        ([0, 1, 2], [0, 1], 3, ""),
        ([0, 0, 0], [0, 0], 1, ""),
        ([1, 2, 3], None, 4, "Of 4 classes class 0 has no training examples: classes are num"),
        ([0, 2, 9], None, 10, "Of 10 classes classes 1 and 3 to 8 have no training examples:"),
        ([0, 1], [0, 1, 2], 3, "class 2 has no training examples, though test examples are of cla"),
        ([0, 2, 4, 6, 8, 10, 12], None, 13, "classes 1, 3, 5, 7, 9 and 1 more have"),
    ],
)
def test_classes_are_counted_in_both_splits_and_empty_ones_named(
    labels: list[int], test_labels: list[int] | None, n_classes: int, words: str
) -> None:
    dataset, notices = said(lambda: own(labels, test_labels))
    assert dataset.n_classes == n_classes
    assert len(notices) == bool(words) and words in "".join(notices)


def test_a_number_of_classes_that_is_told_is_kept() -> None:
    dataset, notices = said(lambda: own([0, 1], n_classes=5))
    assert dataset.n_classes == 5 and "classes 2 to 4 have no training examples" in notices[0]
    with pytest.raises(InvalidSetting, match=r"\[0, 2\), as n_classes=2, not 0 to 2: raise"):
        own([0, 1, 2], n_classes=2)


def test_labels_that_number_no_classes_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="Labels go up to 94,103, but there are 60 examples"):
        own([10115, 94103])
    dataset, _ = said(lambda: own([0, 999]))
    assert dataset.n_classes == 1000


def labels_of(federation: tj.Partition) -> np.ndarray:
    return np.unique(federation.data.labels)


@pytest.mark.parametrize("labels", [[0, 1], [1, 2, 3], [0, 4]])
def test_labels_are_moved_to_classes_that_there_are(labels: list[int]) -> None:
    how = tj.Distribution("noisy_labels", max_label_noise=1.0)
    dataset, _ = said(lambda: own(labels))
    federation, _ = said(lambda: tj.distribute(dataset, 3, how))
    assert labels_of(federation).tolist() == labels
    assert (np.asarray(federation.data.labels) != dataset.train_labels).any()


def test_labels_of_a_single_class_cannot_be_moved() -> None:
    with pytest.raises(InvalidSetting, match="all examples are of class 0"):
        tj.distribute(own([0]), 3, "noisy_labels")


def test_non_iid_needs_every_class_and_names_those_that_lack() -> None:
    assert len(set(np.asarray(tj.distribute(own([0, 1]), 4, "non_iid").data.sizes).tolist())) == 1
    dataset, _ = said(lambda: own([1, 2, 3]))
    with pytest.raises(InvalidSetting, match="every class, but class 0 has no training examples"):
        tj.distribute(dataset, 3, "non_iid")


def outputs(model: tj.Model, shape: Sequence[int]) -> int:
    flat = FlatModel.begun(model, jax.random.key(0), shape)
    return int(flat.apply(flat.theta, jnp.zeros((1, *shape))).shape[1])


@pytest.mark.parametrize("model", [tj.mlp(), "mlp", tj.mlp(hidden=())])
@pytest.mark.parametrize("n_classes", [2, 12])
def test_a_ready_made_network_has_as_many_outputs_as_the_data_have_classes(
    model: Any, n_classes: int
) -> None:
    data = as_client_data(tj.distribute(own(range(n_classes)), 2).data)
    assert outputs(as_model(model, data), data.images.shape[1:]) == n_classes


def test_a_number_of_outputs_that_is_told_is_kept() -> None:
    data = tiny_data()
    for model in (tj.mlp(7, (3,)), tj.cnn(7, (2,), 3)):
        assert as_model(model, data) is model
    assert outputs(tj.mlp(), (8, 8, 1)) == 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_test": 1}, "one test example"),
        ({"test_class": 1}, "All test examples are of class 1"),
        ({"sizes": (1, 9, 1)}, "Clients 0 and 2 have a single training example"),
        ({"sizes": (4, 1)}, "Client 1 has a single training example"),
        ({}, ""),
    ],
)
def test_data_that_say_little_are_told_of(change: dict[str, Any], words: str) -> None:
    sizes, one = change.get("sizes", (3, 3)), change.get("test_class")
    data = tiny_data(sizes, n_test=change.get("n_test", 20))
    if one is not None:
        data = data.replace(test_labels=np.full(20, one))  # type: ignore[attr-defined]
    _, notices = said(lambda: as_client_data(data))
    assert len(notices) == bool(words) and words in "".join(notices)


def test_a_notice_comes_once_from_a_simulation() -> None:
    data, graph = tiny_data((3, 3), n_test=1), tj.topology.build(nx.path_graph(2), np.ones(2))
    _, notices = said(lambda: tj.Simulation(tj.mlp(3, (6,)), data, graph))
    assert len(notices) == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.resize([0.0, 1.0], 48), "be of one kind, .*: give integers for classes"),
        (np.resize([0.5, np.nan], 48), "be finite, .* leave out examples"),
        (np.resize(["yes", "no"], 48), "integers, not <U3: number .* np.unique"),
        (np.resize(np.array(["yes", None], object), 48), "integers, not object"),
        (np.resize([-1, 1], 48), r"\[0, 2\^31\), not -1 to 1: number .* np.unique"),
        (np.resize([0, 1], (48, 1)), r"not \[48, 1\]: give .ravel\(\)"),
        (np.eye(2, dtype=int)[np.resize([0, 1], 48)], r"not \[48, 2\]: of one-hot .*argmax"),
        (np.resize([0, 2**40], 48), r"\[0, 2\^31\)"),
    ],
)
def test_labels_in_other_forms_are_refused_with_the_way_out(labels: Any, words: str) -> None:
    with pytest.raises(InvalidSetting, match=f"train_labels .*must .*{words}") as caught:
        tj.Dataset(FEATURES[:48], labels, FEATURES[48:], np.resize([0, 1], 12))
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_the_way_out_leads_there() -> None:
    answers = np.resize(["no", "yes"], 60)
    numbered = np.unique(answers, return_inverse=True)[1]
    dataset = tj.Dataset(FEATURES[:48], numbered[:48], FEATURES[48:], numbered[48:])
    assert dataset.n_classes == 2


def test_features_are_finite_numbers() -> None:
    labels = np.resize([0, 1], 48)
    for features, words in (
        (np.where(np.arange(48)[:, None] == 3, np.nan, FEATURES[:48]), "must be finite"),
        ((FEATURES[:48] * 10).astype(int), "give features as floats"),
        (FEATURES[:48].astype(str), "must be numbers"),
    ):
        with pytest.raises(InvalidSetting, match=words):
            tj.Dataset(features, labels, FEATURES[48:], labels[:12])
