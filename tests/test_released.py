"""Files that earlier versions wrote are read; those of later versions are refused by name.

`tests/released/0.1.0` holds a finished run, one that was interrupted after round 2 of 3, and a
signed report of the first schema with its keys. Programs of that version wrote them all.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import trip_jax as tj
from tests.conftest import TINY, config_of
from trip_jax.results import dataset
from trip_jax.runs import checkpoints, resume
from trip_jax.runs.foreign import require_schema
from trip_jax.runs.launch import run
from trip_node.node.admission import Federation
from trip_node.node.signing import Signer

RELEASED = Path(__file__).parent / "released" / "0.1.0"
RUN = (*TINY, "training.rounds=3", "devices=1")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Copies of the files, which a test may change."""
    return Path(shutil.copytree(RELEASED, tmp_path / "kept"))


def test_a_finished_run_is_read() -> None:
    kept = tj.load_run(RELEASED / "finished")
    assert "schema" not in kept.data.attrs
    np.testing.assert_allclose(kept.data.score, kept.data.phi.mean("client"), rtol=1e-6)
    assert kept.summary["scores"] == pytest.approx(kept.data.score.values.tolist())
    assert kept.lcv_by_contributor().shape == (3, 3, 3)
    assert kept.rows_of_phi([2]).tolist() == kept.data.phi.values[2:].tolist()


def test_an_interrupted_run_goes_on(
    kept: Path, quick_figures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first rounds stay, and its last is that of the run which nothing interrupted."""
    folder = kept / "interrupted"
    manifest = json.loads((folder / "checkpoints" / "2" / "manifest.json").read_text())
    # The initial model is drawn with other roundings here than on the machine that wrote the files.
    monkeypatch.setattr(resume, "inputs_hash", lambda _: manifest["about"]["inputs"])
    run(config_of(*RUN, "resume=auto"), folder)
    ours, theirs = tj.load_run(folder), tj.load_run(RELEASED / "finished")
    assert ours.summary["resumed_after_round"] == 2
    assert ours.data.attrs["schema"] == dataset.SCHEMA
    for name in ("accuracy", "train_loss"):
        np.testing.assert_array_equal(ours.data[name][:2], theirs.data[name][:2])
    np.testing.assert_allclose(ours.data.shares[:2], ours.data.shares[[2, 2]], rtol=1e-6)
    np.testing.assert_allclose(ours.data.train_loss, theirs.data.train_loss, rtol=1e-4)


def test_a_signed_report_is_admitted(kept: Path) -> None:
    kept /= "node"
    federation = Federation.read(kept / "keys.json")
    message, signature = (kept / "report.json").read_bytes(), (kept / "report.signature")
    report = federation.admit(message, signature.read_text().strip())
    assert report.members == ("ann", "bob") and report.lcv == (0.25, -0.125)
    assert report.sent_to == ("bob",) and json.loads(message)["schema"] == "trip_jax.report/1"
    (kept / "ann.key").chmod(0o600)
    assert Signer.at(kept / "ann.key").sign(message) == signature.read_text().strip()


def test_a_later_schema_of_results_is_refused(kept: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(kept / "finished" / "results.nc", "a") as file:
        file.attrs["schema"] = "trip_jax.results/2"
    with pytest.raises(
        tj.InvalidSetting, match=r"results\.nc has the schema 'trip_jax\.results/2'"
    ):
        tj.load_run(kept / "finished")


def test_a_later_schema_of_checkpoints_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = checkpoints.Checkpoints(tmp_path, {"settings": {}}, keep=1)
    monkeypatch.setattr(checkpoints, "SCHEMA", "trip_jax.checkpoint/2")
    saved.save(1, {"models": np.zeros(2)})
    monkeypatch.undo()
    with pytest.raises(tj.InvalidSetting, match=r"1 has the schema 'trip_jax\.checkpoint/2'"):
        saved.newest()
    assert (tmp_path / "1").is_dir()
    with pytest.raises(tj.InvalidSetting, match="or a later one"):
        require_schema(tmp_path, b"\xff", "trip_jax.results/1")
