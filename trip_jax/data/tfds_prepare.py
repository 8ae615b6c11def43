"""Download and prepare TFDS datasets without TensorFlow.

TFDS downloads archives and writes array_record files without TensorFlow, but unpacks archives,
reads their contents and encodes NumPy images with it (TFDS issue 11058). So the archives are read
here and TFDS is handed Pillow images; what it then writes is a prepared dataset like any other.
"""

import contextlib
import gzip
import io
import os
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.settings.credentials import masked
from trip_jax.settings.errors import InvalidSetting

_CIFAR_MEMBERS = {
    f"cifar-10-batches-bin/{file}": split
    for split, files in {
        "train": [f"data_batch_{i}.bin" for i in range(1, 6)],
        "test": ["test_batch.bin"],
        "names": ["batches.meta.txt"],
    }.items()
    for file in files
}
_CONNECT_SECONDS = 10

Split = tuple[np.ndarray, np.ndarray]  # images [N, H, W, C] uint8, labels [N] uint8


def download_and_prepare(name: str, data_dir: Path) -> Path:
    """Download with TFDS's builder and write array_record files to data_dir/name/version.

    Raises:
        InvalidSetting: no connection, an archive that is not the one TFDS registered, or data in
            another format where the result belongs.
    """
    import requests
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    standard: Any = tfds.builder_cls(name)
    mirror = os.environ.get("TRIP_JAX_TFDS_MIRROR")
    archives = {  # by URL; size and sha256 as TFDS registers them
        f"{mirror.rstrip('/')}/{archive.filename}" if mirror else url: archive
        for url, archive in standard.url_infos.items()
    }

    class PillowBuilder(standard, skip_registration=True):  # type: ignore[call-arg, misc]
        # dataset_info.json then names the standard builder as the maker.
        name = standard.name
        __module__ = standard.__module__
        url_infos = archives

        def _split_generators(
            self, dl_manager: Any
        ) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
            paths = dl_manager.download({info.filename: url for url, info in archives.items()})
            if name == "cifar10":
                splits, names = _read_cifar(paths["cifar-10-binary.tar.gz"])
                self.info.features["label"].names = names
            else:
                splits = _read_mnist(paths)
            return {split: self._generate_examples(split, *splits[split]) for split in splits}

        def _generate_examples(
            self, split: str, images: np.ndarray, labels: np.ndarray
        ) -> Iterator[tuple[int, dict[str, Any]]]:
            from PIL import Image

            for index, (image, label) in enumerate(zip(images, labels, strict=True)):
                example = {"image": Image.fromarray(image.squeeze()), "label": int(label)}
                if "id" in self.info.features:
                    example["id"] = f"{split}_{index:05d}"
                yield index, example

    builder = PillowBuilder(data_dir=data_dir)
    if builder.data_path.exists():  # TFDS would take it as it is
        raise InvalidSetting(
            f"dataset={name} is in {builder.data_dir} but not as array_record files, which alone"
            " can be read without TensorFlow: set TFDS_DATA_DIR to another folder."
        )
    for url in archives:
        # Asked first because TFDS's downloader retries for minutes and knows no time limit.
        try:
            requests.head(url, timeout=_CONNECT_SECONDS, allow_redirects=True).raise_for_status()
        except requests.RequestException as error:
            raise InvalidSetting(
                f"dataset={name} is not prepared in {data_dir} and {masked(url)} cannot be reached:"
                " set TFDS_DATA_DIR to a folder that holds it prepared, or run once on a machine"
                " with a network, or choose dataset=digits."
            ) from error
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    # TFDS reports what it does on standard output, which belongs to the caller.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            builder.download_and_prepare(
                file_format="array_record",
                download_config=tfds.download.DownloadConfig(
                    force_checksums_validation=True, try_download_gcs=False
                ),
            )
        except (NonMatchingChecksumError, requests.RequestException) as error:
            raise InvalidSetting(
                f"dataset={name} was not downloaded whole, or is not what it should be"
                f" ({masked(str(error))}): try again, or set TFDS_DATA_DIR to a folder that holds"
                " it prepared."
            ) from error
    return Path(builder.data_dir)


def _read_mnist(paths: Mapping[str, Path]) -> dict[str, Split]:
    """The splits in the four gzipped idx files of the MNIST family, by file name."""
    return {
        split: (
            _read_idx(paths[f"{prefix}-images-idx3-ubyte.gz"], dimensions=3)[..., None],
            _read_idx(paths[f"{prefix}-labels-idx1-ubyte.gz"], dimensions=1),
        )
        for split, prefix in {"train": "train", "test": "t10k"}.items()
    }


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """A gzipped idx file of unsigned bytes: big-endian 0x08, rank, sizes, then the bytes."""
    with gzip.open(path) as file:
        content = file.read()
    magic, *shape = np.frombuffer(content, ">u4", count=1 + dimensions).tolist()
    if magic != 0x800 + dimensions:
        raise ValueError(f"{path} is not an idx file of {dimensions} dimensions.")
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _read_cifar(path: Path) -> tuple[dict[str, Split], list[str]]:
    """The splits and the class names in CIFAR-10's binary archive.

    A record is a label byte and 3,072 pixels, channel first. Only the members known by name are
    read, into memory: nothing is unpacked to where the archive says.
    """
    contents = {"train": b"", "test": b"", "names": b""}
    with tarfile.open(path, "r:gz") as archive:
        members = {member.name: member for member in archive if member.isfile()}
        for member_name, content in _CIFAR_MEMBERS.items():
            file = archive.extractfile(members[member_name])
            assert file is not None  # only a member that is no file gives None
            contents[content] += file.read()
    splits = {}
    for split in ("train", "test"):
        records = np.frombuffer(contents[split], np.uint8).reshape(-1, 1 + 3 * 32 * 32)
        images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        splits[split] = images, records[:, 0]
    return splits, contents["names"].decode().split()
