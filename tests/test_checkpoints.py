"""Checkpoints are whole, or passed over for the one before."""

import json
import os
import random
import shutil
from errno import ENOSPC
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
import pytest

from trip_jax.runs.checkpoints import Arrays, Checkpoints, _manifest
from trip_jax.settings.errors import InvalidSetting

SETTINGS = {"seed": 0, "training.learning_rate": 0.1, "topology.files": ("a", "b")}


def checkpoints(folder: Path, keep: int = 2, inputs: str = "data", **changed: Any) -> Checkpoints:
    return Checkpoints(folder / "c", {"settings": SETTINGS | changed, "inputs": inputs}, keep)


def arrays(step: int) -> Arrays:
    rng = np.random.default_rng(step)
    return {
        "state": {
            "models": rng.normal(size=(4, 300)).astype(np.float32),
            "round": np.array(step, np.int32),
        },
        "records": {"flagged": rng.random((step, 3)) < 0.5, "loss": np.full((step,), np.nan)},
        "finished": None,
    }


def same(found: Arrays, expected: Arrays) -> bool:
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return False
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for step in (1, 2, 3):
        checkpoints(folder).save(step, arrays(step))
    return folder


def test_the_newest_comes_back_and_old_ones_go(saved: Path) -> None:
    found, damaged_steps = checkpoints(saved).newest()
    assert found is not None and same(found, arrays(3)) and damaged_steps == []
    assert sorted(path.name for path in (saved / "c").iterdir()) == ["2", "3"]


def test_nothing_was_saved(tmp_path: Path) -> None:
    assert checkpoints(tmp_path).newest() == (None, [])
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 1}, "seed=0, not 1: give seed=0"),
        ({"training.learning_rate": 0.2}, "training.learning_rate=0.1, not 0.2"),
        ({"new": 5}, "new=nothing, not 5"),
        ({"precision": "bfloat16"}, "precision=float32, not bfloat16"),  # which came later
        ({"inputs": "other"}, "other data, graphs"),
    ],
)
def test_another_computation_is_refused(saved: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        checkpoints(saved, **changed).newest()


def test_a_setting_that_came_later_was_at_its_default(saved: Path) -> None:
    found, _ = checkpoints(saved, precision="float32").newest()
    assert found is not None and same(found, arrays(3))


def test_what_a_kill_left_is_passed_over_and_removed(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "c", tmp_path / "c")
    shutil.copytree(tmp_path / "c" / "3", tmp_path / "c" / "4.unfinished")
    (tmp_path / "c" / "5").mkdir()  # as if a deletion had been cut off
    found, damaged_steps = checkpoints(tmp_path).newest()
    assert found is not None and same(found, arrays(3)) and damaged_steps == [5]
    checkpoints(tmp_path).save(5, arrays(5))
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["3", "5"]


def test_going_on_from_an_earlier_one_leaves_none_of_later_steps(
    saved: Path, tmp_path: Path
) -> None:
    shutil.copytree(saved / "c", tmp_path / "c")
    (tmp_path / "c" / "3" / "manifest.json").unlink()
    checkpoints(tmp_path, keep=1).save(2, arrays(2))
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["2"]


def damages(thorough: bool) -> list[tuple[str, int]]:
    return [(kind, k) for kind in ("bit", "cut", "gone") for k in range(8 if thorough else 2)]


def test_damage_is_found(saved: Path, tmp_path: Path, thorough: bool) -> None:
    """Whatever happens to whichever file: the newest is as it was, or the one before is taken."""
    chance = random.Random(0)
    files = [path for path in (saved / "c" / "3").rglob("*") if path.is_file()]
    for number, file in enumerate(files):
        for kind, k in damages(thorough):
            folder = tmp_path / f"{number}-{kind}-{k}"
            shutil.copytree(saved / "c", folder / "c")
            damaged = folder / file.relative_to(saved)
            content = bytearray(damaged.read_bytes())
            if kind == "gone":
                damaged.unlink()
            elif kind == "cut":
                damaged.write_bytes(content[: chance.randrange(len(content) or 1)])
            elif content:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
                damaged.write_bytes(content)
            found, damaged_steps = checkpoints(folder).newest()
            assert found is not None
            assert same(found, arrays(2 if damaged_steps else 3)), (file.name, kind)
            changed = not damaged.exists() or damaged.read_bytes() != file.read_bytes()
            assert damaged_steps == [3] * changed


def test_arrays_that_unpack_to_more_are_damaged(tmp_path: Path) -> None:
    """What is saved is not compressed: a file that is could be larger than memory."""
    for step in (1, 2):
        checkpoints(tmp_path).save(step, arrays(step))
    newest = tmp_path / "c" / "2"
    with np.load(newest / "arrays.npz") as file:
        packed = dict(file)
    np.savez_compressed(newest / "arrays.npz", **packed)
    manifest = json.loads((newest / "manifest.json").read_text())
    schema = {"schema": manifest["schema"]}
    told = _manifest(manifest["about"], manifest["none"], newest, schema)
    (newest / "manifest.json").write_text(json.dumps(told))
    found, damaged = checkpoints(tmp_path).newest()
    assert found is not None and same(found, arrays(1)) and damaged == [2]


def test_no_checkpoint_left_is_said(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "c", tmp_path / "c")
    for file in (tmp_path / "c").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(InvalidSetting, match=r"No checkpoint in .* is whole: remove it"):
        checkpoints(tmp_path).newest()


def test_one_of_an_older_version_is_told(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "c", tmp_path / "c")
    (tmp_path / "c" / "4" / "arrays").mkdir(parents=True)
    with pytest.raises(InvalidSetting, match=r"4 is a checkpoint of an older version: go on with"):
        checkpoints(tmp_path).newest()


def test_what_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("a file where the directory would be")
    with pytest.raises(InvalidSetting, match=r"can't be written to .*; those before are kept"):
        checkpoints(tmp_path).save(1, arrays(1))


@pytest.mark.parametrize("nth", [1, 2])
def test_a_disk_that_fails_late_leaves_those_before(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The last bytes of a file may be the ones that find no room."""
    shutil.copytree(saved / "c", tmp_path / "c")
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == nth:
            raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(InvalidSetting, match=r"No space left on device\); those before are kept"):
        checkpoints(tmp_path).save(4, arrays(4))
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["2", "3"]
    found, damaged_steps = checkpoints(tmp_path).newest()
    assert found is not None and same(found, arrays(3)) and damaged_steps == []


def test_a_saved_checkpoint_leaves_no_copy_in_memory(saved: Path, tmp_path: Path) -> None:
    large = {"models": np.random.default_rng(0).normal(size=2**24)}  # 128 MiB
    before = psutil.Process().memory_info().rss
    checkpoints(tmp_path).save(1, large)
    grown = psutil.Process().memory_info().rss - before
    assert grown < large["models"].nbytes / 2, f"{grown / 2**20:.0f} MiB"
