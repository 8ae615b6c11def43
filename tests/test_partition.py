"""How examples fall to clients, and what is done to them."""

from typing import Any

import numpy as np
import pytest

from trip_jax.config import DatasetConfig, Distribution
from trip_jax.data.partition import Partition, distribute
from trip_jax.data.sources import Dataset, load_dataset
from trip_jax.settings.errors import InvalidSetting

KINDS = ("iid", "non_iid", "dirichlet", "sizes", "noisy_images", "noisy_labels", "shifted_features")


def balanced(each: int = 600, n_classes: int = 10) -> Dataset:
    """`each` one-pixel images a class; pixel values tell the examples apart."""
    labels = np.tile(np.arange(n_classes), each).astype(np.int32)
    images = np.linspace(0, 1, len(labels), dtype=np.float32).reshape(-1, 1, 1, 1)
    return Dataset(images, labels, images[:9], labels[:9], n_classes)


def parts(federation: Partition) -> list[np.ndarray]:
    data = federation.data
    return [
        np.asarray(row)[:size]
        for row, size in zip(np.asarray(data.examples), np.asarray(data.sizes), strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_no_example_belongs_to_two_clients_and_the_seed_decides(kind: str) -> None:
    dataset, how = balanced(), Distribution(kind)
    first, again, other = (parts(distribute(dataset, 8, how, seed)) for seed in (1, 1, 2))
    together = np.concatenate(first)
    assert len(set(together.tolist())) == len(together)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any(a.tolist() != b.tolist() for a, b in zip(first, other, strict=True))


def test_iid_has_equal_sizes() -> None:
    assert [len(part) for part in parts(distribute(balanced(), 7))] == [857] * 7


@pytest.mark.parametrize(
    ("n", "each", "expected"), [(8, 6000, 6315), (8, 5000, 5263), (100, 6000, 600)]
)
def test_non_iid_gives_everyone_the_largest_feasible_size(n: int, each: int, expected: int) -> None:
    dataset = balanced(each)
    federation = distribute(dataset, n, Distribution("non_iid"))
    for i, part in enumerate(parts(federation)):
        assert len(part) == expected
        counts = np.bincount(dataset.train_labels[part], minlength=10)
        own = [2 * i % 10, (2 * i + 1) % 10]
        assert (abs(counts[own] - 0.4 * expected) < 1).all()
        others = np.delete(counts, own)
        assert others.max() - others.min() <= 1


def test_sizes_are_proportional_to_2_to_n_plus_1() -> None:
    federation = distribute(balanced(), 8, Distribution("sizes", order="sorted"))
    sizes = np.array([len(part) for part in parts(federation)])
    np.testing.assert_allclose(sizes, 6000 * np.arange(2, 10) / 44, atol=1)
    assert sizes.sum() == 6000
    assert (federation.levels == sizes).all()


def test_dirichlet_is_less_even_for_smaller_alpha() -> None:
    def unevenness(alpha: float) -> float:
        dataset = balanced()
        federation = distribute(dataset, 5, Distribution("dirichlet", alpha=alpha))
        counts = [np.bincount(dataset.train_labels[p], minlength=10) for p in parts(federation)]
        assert np.sum(counts) == 6000
        return float(np.std(counts))

    assert unevenness(0.2) > 2 * unevenness(10)


def test_noisy_images_have_the_noise_of_their_level() -> None:
    images = np.full((4000, 2, 2, 1), 128, np.uint8)
    labels = np.zeros(4000, np.int32)
    dataset = Dataset(images, labels, images, labels, 1)
    federation = distribute(
        dataset, 4, Distribution("noisy_images", max_noise=0.15, order="sorted")
    )
    np.testing.assert_allclose(federation.levels, [0, 0.05, 0.1, 0.15])
    noisy = np.asarray(federation.data.images)
    for part, sigma in zip(parts(federation), federation.levels, strict=True):
        deviation = noisy[part].std()
        assert abs(deviation - sigma) <= 4 * sigma / np.sqrt(2 * 4000) + 1e-6
    strong = distribute(dataset, 4, Distribution("noisy_images", max_noise=5.0))
    pixels = np.asarray(strong.data.images)
    assert pixels.min() == 0 and pixels.max() == 1
    assert (np.asarray(federation.data.test_images) == 128).all()


def test_shifted_features_move_a_client_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(5, 2, (400, 3)).astype(np.float32), np.resize([0, 1], 400)
    dataset = Dataset(features, labels, features[:9], labels[:9])
    how = Distribution("shifted_features", order="sorted", max_shift=3.0)
    federation = distribute(dataset, 4, how)
    assert federation.levels.tolist() == [0, 1, 2, 3]
    images = np.asarray(federation.data.images)
    sizes = []
    for part in parts(federation):
        shift = images[part] - dataset.train_images[part]
        np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape), atol=1e-4)
        sizes.append(abs(shift[0]).max())
    assert sizes[0] == 0 and min(sizes[1:]) > 0.2
    np.testing.assert_array_equal(federation.data.test_images, dataset.test_images)


def test_noisy_labels_move_the_stated_fraction_to_other_classes() -> None:
    dataset = balanced()
    federation = distribute(dataset, 5, Distribution("noisy_labels", max_label_noise=0.4))
    assert sorted(federation.levels.round(6)) == [0, 0.1, 0.2, 0.3, 0.4]
    moved = np.asarray(federation.data.labels) != dataset.train_labels
    for part, fraction in zip(parts(federation), federation.levels, strict=True):
        assert moved[part].mean() == pytest.approx(fraction, abs=1e-3)
    new = np.asarray(federation.data.labels)[moved]
    assert len(set(new.tolist())) == 10


def test_levels_are_dealt_by_seed_unless_sorted() -> None:
    how: dict[str, Any] = {"kind": "noisy_labels"}
    dealt = distribute(balanced(), 20, Distribution(**how)).levels
    assert dealt.tolist() != sorted(dealt)
    assert distribute(
        balanced(), 20, Distribution(**how, order="sorted")
    ).levels.tolist() == sorted(dealt)


@pytest.mark.parametrize("kind", ["iid", "non_iid", "dirichlet"])
def test_order_changes_nothing_where_there_are_no_levels(kind: str) -> None:
    random, in_order = (
        distribute(balanced(60), 5, Distribution(kind, order=order), seed=3)
        for order in ("random", "sorted")
    )
    for one, other in zip(parts(random), parts(in_order), strict=True):
        assert one.tolist() == other.tolist()


def first_draw(dataset: Dataset, n: int, alpha: float, seed: int) -> list[np.ndarray]:
    """The parts of Dirichlet's first draw, class by class, from the generator's own numbers."""
    rng = np.random.default_rng([seed, 4])
    rng.permutation(n)
    owned: list[list[int]] = [[] for _ in range(n)]
    for c in range(dataset.n_classes):
        rows = rng.permutation(np.flatnonzero(dataset.train_labels == c))
        ends = (np.cumsum(rng.dirichlet([alpha] * n)) * len(rows)).astype(int)
        ends[-1] = len(rows)
        for i, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            owned[i] += rows[start:end].tolist()
    return [np.array(own, int) for own in owned]


def test_dirichlet_is_drawn_anew_until_every_client_has_the_minimum() -> None:
    dataset, kept, drawn_anew = balanced(20, 3), 0, 0
    for seed in range(12):
        first = first_draw(dataset, 5, 0.3, seed)
        for minimum in (1, 6):
            how = Distribution("dirichlet", alpha=0.3, minimum=minimum)
            found = parts(distribute(dataset, 5, how, seed))
            least = min(len(part) for part in found)
            assert least >= minimum
            assert sorted(np.concatenate(found).tolist()) == list(range(60))
            same = [part.tolist() for part in found] == [part.tolist() for part in first]
            assert same == (min(len(part) for part in first) >= minimum)
            kept, drawn_anew = kept + same, drawn_anew + (not same)
    assert kept > 3 and drawn_anew > 3


def test_few_clients_with_uneven_shares_of_digits_are_never_refused() -> None:
    dataset = load_dataset("digits")
    for seed in range(10):
        how = Distribution("dirichlet", alpha=0.1, minimum=10)
        assert int(distribute(dataset, 10, how, seed).data.sizes.min()) >= 10


def test_a_minimum_beyond_the_data_is_refused_before_it_is_drawn() -> None:
    with pytest.raises(
        InvalidSetting, match=r"distribution\.minimum=13 for n_clients=5 .* 60 train"
    ):
        distribute(balanced(6), 5, Distribution("dirichlet", minimum=13))
    with pytest.raises(
        InvalidSetting, match=r"without distribution\.minimum=12 .* or distribution\.m"
    ):
        distribute(balanced(6), 5, Distribution("dirichlet", alpha=0.01, minimum=12))
    with pytest.raises(InvalidSetting, match=r"distribution\.minimum must be at least 1"):
        Distribution("dirichlet", minimum=0)


@pytest.mark.parametrize(
    ("n", "how", "words"),
    [
        (61, Distribution(), "n_clients=61 is more than the 60"),
        (30, Distribution("dirichlet", alpha=0.001), "without data.*alpha"),
        (50, Distribution("sizes"), "without data"),
    ],
)
def test_clients_without_data_are_refused(n: int, how: Distribution, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        distribute(balanced(6), n, how)


def test_the_test_set_is_drawn_by_seed() -> None:
    sets = [load_dataset(DatasetConfig("synthetic", test_size=100), seed) for seed in (0, 0, 1)]
    assert [len(s.test_labels) for s in sets] == [100] * 3
    assert (sets[0].test_images == sets[1].test_images).all()
    assert not (sets[0].test_images == sets[2].test_images).all()


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_embedded_datasets(name: str) -> None:
    dataset = load_dataset(DatasetConfig(name))
    assert len(dataset.test_labels) == 500
    assert set(dataset.train_labels.tolist()) == set(range(10))
    assert dataset.train_images.shape[1:] == (8, 8, 1)


def test_digits_are_all_there_once() -> None:
    dataset = load_dataset(DatasetConfig("digits"))
    assert len(dataset.train_labels) + len(dataset.test_labels) == 1797
    assert dataset.train_images.max() == 255 and dataset.train_images.min() == 0


def test_sizes_beyond_the_data_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="test_size=501 is more than the 500"):
        load_dataset(DatasetConfig("digits", test_size=501))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_images": np.zeros(3, np.uint8)}, r"\[N, ...\]"),
        ({"train_images": np.zeros((4, 1, 1, 1), np.uint8)}, "train_labels"),
        ({"test_images": np.zeros((3, 1, 1, 1), np.int64)}, "int64"),
        ({"test_images": np.full((3, 1, 1, 1), np.nan, np.float32)}, "finite"),
        ({"test_images": np.full((3, 1, 1, 1), 2, np.float32)}, r"\[0, 1\]"),
        ({"test_images": np.zeros((3, 2, 1, 1), np.uint8)}, "shape of train_images"),
        ({"test_labels": np.zeros(3)}, "integers"),
        ({"train_labels": np.array([0, 1, 7])}, r"\[0, 3\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], words: str) -> None:
    images, labels = np.zeros((3, 1, 1, 1), np.uint8), np.array([0, 1, 2])
    fields = {
        "train_images": images,
        "train_labels": labels,
        "test_images": images,
        "test_labels": labels,
        "n_classes": 3,
    }
    Dataset(**fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=words):
        Dataset(**{**fields, **change})  # type: ignore[arg-type]
