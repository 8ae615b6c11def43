"""Images through TFDS: first use on a machine with a network, the cache, and the way it fails.

Small archives in the upstream formats are served from 127.0.0.1. The first use of a dataset runs in
a process of its own in which importing TensorFlow raises.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from trip_jax.data import cache, tfds_source
from trip_jax.settings.errors import InvalidSetting

REPOSITORY = Path(__file__).resolve().parents[1]
REAL_DATA = Path(os.environ.get("TFDS_DATA_DIR") or REPOSITORY.parent / "shared" / "tfds")
SHAPES = {"fashion_mnist": (28, 28, 1), "cifar10": (32, 32, 3)}
N_TRAIN, N_TEST = 50, 20

# Only the checksums differ from a real first use: those that TFDS registers are replaced.
FIRST_USE = """
import hashlib, pathlib, sys
import numpy as np
from trip_jax.data.tfds_source import load_tfds
assert "tensorflow_datasets" not in sys.modules

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download.checksums import UrlInfo
name, archives, output = sys.argv[1:]
standard = tfds.builder_cls(name)
standard.url_infos = {
    url: UrlInfo(len(content), hashlib.sha256(content).hexdigest(), info.filename)
    for url, info in standard.url_infos.items()
    for content in [(pathlib.Path(archives) / info.filename).read_bytes()]
}
np.savez(output, *load_tfds(name))
assert "tensorflow" not in sys.modules
"""


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def make_arrays(name: str) -> cache.Arrays:
    rng = np.random.default_rng(7)
    train, test = (
        rng.integers(0, 256, (count, *SHAPES[name]), np.uint8) for count in (N_TRAIN, N_TEST)
    )
    train_labels, test_labels = (
        np.arange(count, dtype=np.int32) % 10 for count in (N_TRAIN, N_TEST)
    )
    return train, train_labels, test, test_labels


def write_archives(name: str, folder: Path) -> None:
    """The files of make_arrays(name), as the dataset's authors publish them."""
    train, train_labels, test, test_labels = make_arrays(name)
    if name == "fashion_mnist":
        for prefix, images, labels in (("train", train, train_labels), ("t10k", test, test_labels)):
            for kind, values in (
                ("images-idx3", images[..., 0]),
                ("labels-idx1", labels.astype(np.uint8)),
            ):
                header = np.array([0x800 + values.ndim, *values.shape], ">u4").tobytes()
                content = gzip.compress(header + values.tobytes())
                (folder / f"{prefix}-{kind}-ubyte.gz").write_bytes(content)
        return
    members = {
        "../escaped.bin": b"a member that nobody asked for",
        "cifar-10-batches-bin/batches.meta.txt": b"a b c d e f g h i j",
    }
    for images, labels, batches in (
        (train, train_labels, [f"data_batch_{i}.bin" for i in range(1, 6)]),
        (test, test_labels, ["test_batch.bin"]),
    ):
        pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        records = np.hstack([labels[:, None].astype(np.uint8), pixels])
        for batch, rows in zip(batches, np.split(records, len(batches)), strict=True):
            members[f"cifar-10-batches-bin/{batch}"] = rows.tobytes()
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for member, content in members.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def examples(images: np.ndarray, labels: np.ndarray) -> list[tuple[bytes, int]]:
    """A split without its order, which TFDS shuffles."""
    return sorted(
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    )


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, no prepared data and an upstream that refuses connections."""
    monkeypatch.setenv("TRIP_JAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TRIP_JAX_TFDS_MIRROR", "http://127.0.0.1:9/nobody")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module", params=sorted(SHAPES))
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, str]]:
    """A dataset's name, its archives and the base URL that serves them."""
    archives = tmp_path_factory.mktemp("upstream")
    write_archives(request.param, archives)
    handler = partial(QuietHandler, directory=str(archives))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield request.param, archives, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def first_use(
    served: tuple[str, Path, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A dataset's name and the folder that a first use has filled: data/, cache/, loaded.npz."""
    name, archives, url = served
    folder = tmp_path_factory.mktemp("first_use")
    (folder / "path" / "tensorflow").mkdir(parents=True)
    (folder / "path" / "tensorflow" / "__init__.py").write_text("raise ImportError('not here')")
    environment = os.environ | {
        "PYTHONPATH": f"{folder / 'path'}{os.pathsep}{REPOSITORY}",
        "TFDS_DATA_DIR": str(folder / "data"),
        "TRIP_JAX_CACHE": str(folder / "cache"),
        "TRIP_JAX_TFDS_MIRROR": url,
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-c", FIRST_USE, name, str(archives), str(folder / "loaded.npz")]
    process = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout == process.stderr == ""
    return name, folder


def test_first_use_needs_no_tensorflow_and_keeps_every_example(first_use: tuple[str, Path]) -> None:
    name, folder = first_use
    train, train_labels, test, test_labels = make_arrays(name)
    with np.load(folder / "loaded.npz") as loaded:
        got = [loaded[f"arr_{i}"] for i in range(4)]
    assert [array.dtype for array in got] == [np.uint8, np.int32] * 2
    assert examples(got[0], got[1]) == examples(train, train_labels)
    assert examples(got[2], got[3]) == examples(test, test_labels)
    assert not list(folder.parent.rglob("escaped.bin"))


def test_what_is_prepared_is_an_ordinary_tfds_dataset(first_use: tuple[str, Path]) -> None:
    import tensorflow_datasets as tfds

    name, folder = first_use
    builder = tfds.builder(name, data_dir=folder / "data")
    assert builder.is_prepared()
    assert builder.info.module_name == type(builder).__module__
    sources = builder.as_data_source()
    assert {split: len(source) for split, source in sources.items()} == {
        "train": N_TRAIN,
        "test": N_TEST,
    }
    images, labels = zip(*((e["image"], e["label"]) for e in sources["test"]), strict=True)
    assert examples(np.stack(images), np.array(labels)) == examples(*make_arrays(name)[2:])


def test_cache_alone_is_enough_and_prepared_data_alone_too(
    first_use: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder = first_use
    with monkeypatch.context() as only_cache:
        only_cache.setenv("TRIP_JAX_CACHE", str(folder / "cache"))
        from_cache = tfds_source.load_tfds(name)
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder / "data"))
    decoded = tfds_source.load_tfds(name)
    with np.load(folder / "loaded.npz") as loaded:
        for i in range(4):
            np.testing.assert_array_equal(from_cache[i], loaded[f"arr_{i}"])
            np.testing.assert_array_equal(decoded[i], loaded[f"arr_{i}"])


def test_cache_of_other_prepared_data_is_rebuilt(
    first_use: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder = first_use
    shutil.copytree(folder / "data" / name, tmp_path / "data" / name)
    expected = tfds_source.load_tfds(name)
    (info,) = (tmp_path / "data" / name).glob("*/dataset_info.json")
    doctored = (np.zeros_like(expected[0]), *expected[1:])
    cache.write(name, tfds_source._fingerprint(info.parent), doctored)
    assert not tfds_source.load_tfds(name)[0].any()  # the same data: the cache is believed

    info.write_text(info.read_text() + "\n")
    np.testing.assert_array_equal(tfds_source.load_tfds(name)[0], expected[0])


def test_fingerprint_covers_info_file_names_and_file_sizes(tmp_path: Path) -> None:
    info, records = tmp_path / "dataset_info.json", tmp_path / "x-test.array_record-00000-of-00001"
    info.write_text("{}")
    records.write_text("records")
    seen = [tfds_source._fingerprint(tmp_path)]
    info.write_text("{ }")
    seen.append(tfds_source._fingerprint(tmp_path))
    records.write_text("more records")
    seen.append(tfds_source._fingerprint(tmp_path))
    records.rename(tmp_path / "x-train.array_record-00000-of-00001")
    seen.append(tfds_source._fingerprint(tmp_path))
    assert len(set(seen)) == 4


def test_archive_with_a_wrong_checksum_is_refused(
    served: tuple[str, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, url = served  # small archives, held against the checksums of the real ones
    monkeypatch.setenv("TRIP_JAX_TFDS_MIRROR", url)
    with pytest.raises(InvalidSetting, match="wrong checksum"):
        tfds_source.load_tfds(name)
    assert not list(tmp_path.rglob("dataset_info.json"))
    assert not list(tmp_path.rglob("*.npz"))


def test_without_data_cache_or_network_one_sentence_tells_the_way_out() -> None:
    start = time.monotonic()
    with pytest.raises(InvalidSetting) as error:
        tfds_source.load_tfds("cifar10")
    assert time.monotonic() - start < 5
    message = str(error.value)
    for part in ("dataset=cifar10", "TFDS_DATA_DIR", "a network", "dataset=digits"):
        assert part in message
    assert message.endswith(".") and "\n" not in message and ". " not in message


def test_data_prepared_in_another_format_is_named(tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    builder = tfds.builder("mnist", data_dir=tmp_path / "data")
    builder.data_path.mkdir(parents=True)
    builder.info.write_to_directory(builder.data_dir)
    (builder.data_path / "mnist-train.tfrecord-00000-of-00001").touch()
    with pytest.raises(InvalidSetting, match=r"dataset=mnist .* not as array_record"):
        tfds_source.load_tfds("mnist")


Damage = Callable[[Path], object]  # of the folder of a version


def cut(size: float) -> Damage:
    """Leave a share of the training examples' file."""

    def damage(version: Path) -> None:
        (file,) = version.glob("*-train*")
        file.write_bytes(file.read_bytes()[: int(size * file.stat().st_size)])

    return damage


def flip(pattern: str, at: float) -> Damage:
    """Change the first byte that is not 0 behind a share of a file."""

    def damage(version: Path) -> None:
        (file,) = version.glob(pattern)
        content = bytearray(file.read_bytes())
        start = int(at * len(content))
        content[next(k for k in range(start, len(content)) if content[k])] ^= 64
        file.write_bytes(content)

    return damage


def write(file: str, change: Callable[[str], str]) -> Damage:
    return lambda version: (version / file).write_text(change((version / file).read_text()))


DAMAGES: dict[str, tuple[Damage, str]] = {
    "records_empty": (cut(0), "-train.array_record"),
    "records_cut": (cut(0.6), "-train.array_record"),
    "records_short_of_a_byte": (cut(0.9999), "-train.array_record"),
    "records_changed": (flip("*-train*", 0.1), "-train.array_record"),
    "test_records_changed": (flip("*-test*", 0.02), "-test.array_record"),
    "no_records": (lambda to: next(to.glob("*-train*")).unlink(), "-train.array_record"),
    "no_info": (lambda to: (to / "dataset_info.json").unlink(), "dataset_info.json"),
    "info_empty": (write("dataset_info.json", lambda text: ""), "dataset_info.json"),
    "info_cut": (write("dataset_info.json", lambda text: text[:300]), "dataset_info.json"),
    "info_of_fewer": (
        write("dataset_info.json", lambda text: text.replace(f'"{N_TRAIN}"', f'"{N_TRAIN - 1}"')),
        f"counts {N_TRAIN - 1} train examples",
    ),
    "info_of_bytes": (
        lambda to: (to / "dataset_info.json").write_bytes(b"\xff\xfe\0"),
        "dataset_info.json",
    ),
    "features_empty": (write("features.json", lambda text: ""), "features.json"),
    "features_cut": (write("features.json", lambda text: text[:99]), "features.json"),
    "features_of_others": (
        write(
            "features.json", lambda text: text.replace("tensorflow_datasets.core", "antigravity")
        ),
        "none of TFDS's features",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_prepared_data_is_one_sentence_with_the_file(
    name: str, first_use: tuple[str, Path], tmp_path: Path
) -> None:
    dataset, folder = first_use
    damage, words = DAMAGES[name]
    shutil.copytree(folder / "data" / dataset, tmp_path / "data" / dataset)
    (version,) = (tmp_path / "data" / dataset).glob("[0-9]*")
    damage(version)
    with pytest.raises(InvalidSetting) as caught:
        tfds_source.load_tfds(dataset)
    message = str(caught.value)
    assert message.startswith(f"dataset={dataset} cannot be read, as {version}")
    assert words in message and f"delete {version}" in message and "TFDS_DATA_DIR" in message
    assert message.endswith(".") and "\n" not in message and ". " not in message
    assert not list(tmp_path.rglob("*.npz"))
    assert "antigravity" not in sys.modules


def test_folders_that_are_no_version_are_passed_over(
    first_use: tuple[str, Path], tmp_path: Path
) -> None:
    dataset, folder = first_use
    shutil.copytree(folder / "data" / dataset, tmp_path / "data" / dataset)
    (version,) = (tmp_path / "data" / dataset).glob("[0-9]*")
    shutil.copytree(version, version.with_name("9.0.0 (copy)"))
    expected = tfds_source.load_tfds(dataset)
    assert len(expected[0]) == N_TRAIN
    shutil.rmtree(version)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(InvalidSetting, match="is not prepared in"):
        tfds_source.load_tfds(dataset)


def test_unknown_name_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="imagenet") as error:
        tfds_source.load_tfds("imagenet")
    assert not isinstance(error.value, InvalidSetting)


def flip_a_pixel(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(make_arrays("cifar10")[0].tobytes()) + 1000] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def shorten_a_header(path: Path) -> None:
    """NumPy then takes blanks of the header for pixels, and does not come to the checksum."""
    content = bytearray(path.read_bytes())
    content[content.index(b"NUMPY", content.index(b"train_images")) + 7] ^= 2
    path.write_bytes(content)


def forbid_a_method(path: Path) -> None:
    content = path.read_bytes()
    at = content.rindex(b"PK\1\2")
    path.write_bytes(content[: at + 10] + b"\x63" + content[at + 11 :])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def store_other_shape(path: Path) -> None:
    train, train_labels, test, test_labels = make_arrays("cifar10")
    cache.write("cifar10", "here", (train[:, :28], train_labels, test, test_labels))


def store_fewer_labels(path: Path) -> None:
    train, train_labels, test, test_labels = make_arrays("cifar10")
    cache.write("cifar10", "here", (train, train_labels[1:], test, test_labels))


class Trap:
    def __reduce__(self) -> tuple:
        return spring_the_trap, ()


def spring_the_trap() -> None:
    raise AssertionError("a cache was unpickled")


def store_a_pickle(path: Path) -> None:
    np.savez(path, fingerprint="here", train_images=np.array([Trap()], dtype=object))


@pytest.mark.parametrize(
    "damage",
    [
        *(flip_a_pixel, shorten_a_header, forbid_a_method, truncate, empty),
        *(store_other_shape, store_fewer_labels, store_a_pickle),
    ],
    ids=lambda damage: damage.__name__,
)
def test_damaged_cache_is_ignored_with_a_warning(damage: Callable[[Path], None]) -> None:
    arrays = make_arrays("cifar10")
    cache.write("cifar10", "here", arrays)
    stored = cache.read("cifar10", (32, 32, 3), "here")
    assert stored is not None
    np.testing.assert_array_equal(stored[0], arrays[0])
    damage(cache.folder() / "cifar10.npz")
    with pytest.warns(UserWarning, match="cannot be used and is ignored"):
        assert cache.read("cifar10", (32, 32, 3), "here") is None


def test_damaged_cache_is_rebuilt_where_there_is_data(
    first_use: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder = first_use
    cache.folder().mkdir()
    empty(cache.folder() / f"{name}.npz")
    with pytest.warns(UserWarning, match="is ignored"), pytest.raises(InvalidSetting):
        tfds_source.load_tfds(name)
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder / "data"))
    with pytest.warns(UserWarning, match="is ignored"):
        tfds_source.load_tfds(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tfds_source.load_tfds(name)


def test_unwritable_cache_folder_is_only_a_warning(
    first_use: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, folder = first_use
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIP_JAX_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder / "data"))
    with pytest.warns(UserWarning, match="cannot be written"):
        assert len(tfds_source.load_tfds(name)[0]) == N_TRAIN


def test_cache_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIP_JAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "trip_jax"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "trip_jax"


def real_folder(name: str) -> Path:
    folder = tfds_source._prepared_folder(REAL_DATA, name)
    if folder is None:
        pytest.skip(f"{name} is not prepared in TFDS_DATA_DIR or beside the repository")
    return folder


def test_fashion_mnist(monkeypatch: pytest.MonkeyPatch, thorough: bool) -> None:
    if not thorough:
        pytest.skip("decodes 70,000 images: make test-all")
    real_folder("fashion_mnist")
    monkeypatch.setenv("TFDS_DATA_DIR", str(REAL_DATA))
    arrays = tfds_source.load_tfds("fashion_mnist")
    images, labels, test_images, test_labels = arrays
    assert images.shape == (60000, 28, 28, 1) and test_images.shape == (10000, 28, 28, 1)
    assert np.bincount(labels).tolist() == [6000] * 10
    assert np.bincount(test_labels).tolist() == [1000] * 10
    assert (images.min(), images.max()) == (0, 255)
    assert images.mean() / 255 == pytest.approx(0.2860, abs=1e-4)  # as published with the data

    start = time.monotonic()
    cached = tfds_source.load_tfds("fashion_mnist")
    assert time.monotonic() - start < 2
    for got, expected in zip(cached, arrays, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_fashion_mnist_test_split() -> None:
    images, labels = tfds_source._decode(real_folder("fashion_mnist"), "test")
    assert images.shape == (10000, 28, 28, 1)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert (images.min(), images.max()) == (0, 255)


@pytest.mark.thorough
def test_cifar10_test_split_is_rgb() -> None:
    images, labels = tfds_source._decode(real_folder("cifar10"), "test")
    assert images.shape == (10000, 32, 32, 3)
    assert np.bincount(labels).tolist() == [1000] * 10
    means = images.mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.494, 0.485, 0.450], atol=2e-3)
