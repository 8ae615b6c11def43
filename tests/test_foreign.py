"""Files from elsewhere lead to no other file; what a run did not write is never removed."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import h5py
import numpy as np
import pytest
from omegaconf import OmegaConf

from tests.conftest import TINY, Command, config_of
from trip_jax import InvalidSetting, compare, load_run, report
from trip_jax.cli import verify
from trip_jax.cli.run import _newest_alike
from trip_jax.config import Config
from trip_jax.results import figures
from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.directory import FIGURES, draw_figures, whole
from trip_jax.runs.free_directory import WRITTEN, given_up, refuse_taken
from trip_jax.runs.launch import run
from trip_jax.runs.lock import locked
from trip_jax.runs.schema import config_of_run, config_of_values
from trip_jax.runs.started import note_start, start_of
from trip_jax.runs.sweep import read_job
from trip_jax.settings.own_files import remove_files
from trip_jax.simulation.rounds import FiledRounds

pytestmark = pytest.mark.usefixtures("quick_figures")

SECRET = b"AWS_SECRET=hunter2hunter2hunter2"


def without(file: h5py.File, name: str) -> dict[str, object]:
    kept = dict(file[name].attrs)
    del file[name]
    return {key: kept[key] for key in ("long_name", "units") if key in kept}


def external_storage(file: h5py.File, secret: Path) -> None:
    n = len(file["score"])
    kept = without(file, "score")
    made = file.create_dataset("score", (n,), "<f4", external=[(str(secret), 0, 4 * n)])
    made.dims[0].attach_scale(file["client"])
    made.attrs.update(kept)


def external_link(file: h5py.File, secret: Path) -> None:
    with h5py.File(secret.with_suffix(".h5"), "w") as other:
        other["score"] = np.full(len(file["score"]), 42, "f4")
    without(file, "score")
    file["score"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "/score")


def link_beside_what_is_read(file: h5py.File, secret: Path) -> None:
    file.create_group("a/b")["c"] = h5py.ExternalLink(str(secret), "/")


def soft_link(file: h5py.File, secret: Path) -> None:
    file["alias"] = h5py.SoftLink("/score")


def virtual(file: h5py.File, secret: Path) -> None:
    n = len(file["score"])
    without(file, "score")
    layout = h5py.VirtualLayout((n,), "<f4")
    layout[:] = h5py.VirtualSource(str(secret), "score", (n,))
    file.create_virtual_dataset("score", layout)


def plugin(file: h5py.File, secret: Path) -> None:
    how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    how.set_chunk((1,))
    how.set_filter(32999, h5py.h5z.FLAG_OPTIONAL, ())
    space = h5py.h5s.create_simple((1,))
    h5py.h5d.create(file.id, b"more", h5py.h5t.IEEE_F32LE, space, how)


FOREIGN: dict[Callable[[h5py.File, Path], None], str] = {
    external_storage: "'score' in it has its data in another file",
    external_link: "'score' in it is a link",
    link_beside_what_is_read: "'a/b/c' in it is a link",
    soft_link: "'alias' in it is a link",
    virtual: "'score' in it is made of other data sets",
    plugin: "'more' in it needs a filter that is a plugin",
}


@pytest.mark.parametrize("change", FOREIGN)
def test_results_that_lead_elsewhere_are_refused(
    over: Path,
    tmp_path: Path,
    change: Callable[[h5py.File, Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    (over / "report.html").unlink()
    with h5py.File(over / "results.nc", "r+") as file:
        change(file, tmp_path / "secret")
    with pytest.raises(InvalidSetting, match=r"results.nc is not read, as") as refused:
        load_run(over)
    assert FOREIGN[change] in str(refused.value)
    for main in (report.main, compare.main, verify.main):
        assert main([str(over)]) == 2
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err and said.err.count("\n") == 3
    assert not (over / "report.html").exists()


def test_compressed_results_are_read(over: Path) -> None:
    before = load_run(over).data
    compressed = {name: {"zlib": True, "shuffle": True} for name in before.data_vars}
    before.to_netcdf(over / "results.nc", engine="h5netcdf", encoding=compressed)
    assert load_run(over).data.identical(before)


def test_results_larger_than_memory_are_refused_unread(over: Path) -> None:
    with h5py.File(over / "results.nc", "r+") as file:
        file.create_dataset("more", (2**44,), "<f4", chunks=(2**20,), compression="gzip")
    with pytest.raises(InvalidSetting, match="Memory is not enough"):
        load_run(over)


@pytest.mark.parametrize("name", ["summary.json", "rounds.csv", "results.nc"])
def test_a_pipe_is_no_file_of_a_run(over: Path, name: str) -> None:
    """Its reading would wait for ever."""
    (over / name).unlink()
    os.mkfifo(over / name)
    with pytest.raises(InvalidSetting):
        load_run(over)
    with pytest.raises(InvalidSetting):
        refuse_taken(over, config_of(*TINY))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"scores": ' * 10_000, "\ud800", "9" * 5000])
def test_json_that_breaks_readers_is_damaged(over: Path, text: str) -> None:
    (over / "summary.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InvalidSetting, match=r"summary.json is damaged"):
        load_run(over)
    with pytest.raises(InvalidSetting, match=r"summary.json is damaged"):
        refuse_taken(over, config_of(*TINY))
    (over / ".hydra").mkdir(exist_ok=True)
    (over / ".hydra" / "overrides.yaml").write_text("[]")
    assert read_job(over, "0").status == "damaged"


@pytest.mark.parametrize(
    "text",
    ["${oc.env:SECRET}", "${seed}", "${hydra:runtime.cwd}", "${oc.decode:1}", r"\${a}", "???"],
)
def test_nothing_is_resolved_in_a_summary(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    settings = json.loads(json.dumps(asdict(config_of(*TINY))))
    settings["topology"] |= {"kind": "file", "files": [text]}
    found = config_of_run(Path("run"), {"config": settings})
    assert found.topology.files == (text,)
    settings["dataset"]["name"] = text
    with pytest.raises(InvalidSetting) as refused:
        config_of_run(Path("run"), {"config": settings})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [None, [], "text", {"sed": 1}, {"topology": 3}, {"topology": {"knd": "ring"}}, {"seed": "x"}],
)
def test_settings_of_another_form_are_refused_by_name(settings: object) -> None:
    with pytest.raises(InvalidSetting, match=r"summary.json is damaged, or of another version \("):
        config_of_run(Path("run"), {"config": settings})


def test_settings_come_back_from_json() -> None:
    config = config_of(*TINY, "adversary=d1d2", "topology.redraw_every=2", "topology=erdos_renyi")
    assert config_of_values(json.loads(json.dumps(asdict(config)))) == config


# Nothing but what a run wrote is removed.


def checkpoints(folder: Path, keep: int = 1) -> Checkpoints:
    return Checkpoints(folder, {"settings": {}}, keep)


ARRAYS = {"a": np.zeros(3)}


def test_checkpoints_leave_what_they_did_not_write(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    checkpoints(folder).save(1, ARRAYS)
    shutil.copytree(folder / "1", folder / "1.keep")
    shutil.copytree(folder / "1", folder / "01")
    mine = [folder / name for name in ("2024/photo", "7.unfinished/note", "best/arrays.npz")]
    for path in mine:
        path.parent.mkdir()
        path.write_text("mine")
    (folder / "note").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder / "1", elsewhere)
    (folder / "3").symlink_to(elsewhere)
    (folder / "0").mkdir()
    (folder / "0" / "arrays.npz").symlink_to(elsewhere / "arrays.npz")
    checkpoints(folder).save(5, ARRAYS)
    found, damaged = checkpoints(folder).newest()
    assert found is not None and damaged == []
    checkpoints(folder).remove()
    kept = ["0", "01", "1.keep", "2024", "3", "7.unfinished", "best", "note"]
    assert sorted(path.name for path in folder.iterdir()) == kept
    assert all(path.read_text() == "mine" for path in mine)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["arrays.npz", "manifest.json"]
    for step in (2024, 3):
        with pytest.raises(InvalidSetting, match="can't be written"):
            checkpoints(folder).save(step, ARRAYS)


def test_checkpoints_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk" / "thesis").mkdir(parents=True)
    (tmp_path / "checkpoints").symlink_to(tmp_path / "disk")
    with pytest.raises(InvalidSetting, match=r"checkpoints is a link, .*set hydra.run.dir"):
        checkpoints(tmp_path / "checkpoints").save(1, ARRAYS)
    checkpoints(tmp_path / "checkpoints").remove()
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["thesis"]


@pytest.mark.parametrize("about", [None, [], {}, {"settings": None}, "text"])
def test_a_checkpoint_about_nothing_is_damaged(tmp_path: Path, about: object) -> None:
    folder = tmp_path / "checkpoints"
    kept = checkpoints(folder)
    kept._about = about  # type: ignore[assignment]
    kept.save(1, ARRAYS)
    with pytest.raises(InvalidSetting, match=r"No checkpoint in .* is whole"):
        checkpoints(folder).newest()


def test_a_copy_of_a_checkpoint_hinders_no_run(tmp_path: Path) -> None:
    checkpoints(tmp_path / "checkpoints").save(1, ARRAYS)
    shutil.copytree(tmp_path / "checkpoints" / "1", tmp_path / "checkpoints" / "1.keep")
    refuse_taken(tmp_path, config_of(*TINY, "resume=auto"))


@pytest.mark.parametrize("name", [*WRITTEN, "updates/1.npy", ".hydra/config.yaml"])
@pytest.mark.parametrize("resume", [(), ("resume=auto",)])
def test_a_run_writes_through_no_link(tmp_path: Path, name: str, resume: tuple[str, ...]) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).symlink_to(target)
    with pytest.raises(InvalidSetting, match=f"{name} is a link"):
        run(config_of(*TINY, *resume), tmp_path / "run")
    assert not list(target.iterdir()) and (tmp_path / "run" / name).is_symlink()


@pytest.mark.parametrize("name", [".lock", "summary.json.partial"])
def test_no_file_of_a_run_is_a_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine").write_text("mine")
    link = tmp_path / "run" / name
    link.parent.mkdir()
    link.symlink_to(tmp_path / "mine")
    folder = tmp_path / "run"
    with (
        pytest.raises(InvalidSetting, match="is a link"),
        locked(folder),
        whole(folder / "summary.json") as path,
    ):
        path.write_text("not mine")
    assert (tmp_path / "mine").read_text() == "mine"


def test_files_of_ones_own_among_figures_stay(over: Path) -> None:
    data = load_run(over).data
    (over / "figures" / "mine.png").write_text("mine")
    remove_files(over / "figures", FIGURES)
    assert [path.name for path in (over / "figures").iterdir()] == ["mine.png"]
    for _ in range(2):  # drawn once
        draw_figures(over, data)
        names = sorted(path.name for path in (over / "figures").iterdir())
        assert names == ["mine.png", "phi.png"] and not (over / "figures.partial").exists()


def test_every_figure_is_known_as_one_that_was_drawn() -> None:
    drawn = (figures.accuracy, figures.phi, figures.scores, figures.graph)
    assert all(FIGURES.fullmatch(f"{one.__name__}.png") for one in drawn)


def test_a_refused_run_leaves_what_came_beside_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="no"), given_up(tmp_path):
        (tmp_path / ".hydra").mkdir()
        for name in (".hydra/config.yaml", "rounds.csv"):
            (tmp_path / name).write_text("")
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "mine").write_text("mine")
        (tmp_path / "link").symlink_to(tmp_path / "notes")
        raise InvalidSetting("no")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "notes"]
    assert (tmp_path / "notes" / "mine").exists()


@pytest.mark.parametrize(
    "table",
    [
        {"../mine": ["<f4", [1]]},
        {"lcv": ["<f4", [-1]]},
        {"lcv": ["O", [1]]},
        {"lcv": ["no type", [1]]},
        {"lcv": 3},
        ["lcv"],
    ],
)
def test_a_table_of_records_from_elsewhere_leads_nowhere(tmp_path: Path, table: object) -> None:
    """A name in it could lead to a file that would be cut off."""
    (tmp_path / "rounds").mkdir()
    for path in (tmp_path / "mine.bin", tmp_path / "rounds" / "lcv.bin"):
        path.write_bytes(b"mine" * 9)
    (tmp_path / "rounds" / "fields.json").write_text(json.dumps(table))
    with pytest.raises(InvalidSetting, match="lacks records of the first 1 rounds"):
        FiledRounds(tmp_path / "rounds", 1)
    assert (tmp_path / "mine.bin").read_bytes() == b"mine" * 9


# Which run began last, a run says itself.


def unfinished(folder: Path, config: Config, when: str) -> Path:
    """A run as a kill leaves it."""
    checkpoints(folder / "checkpoints").save(1, ARRAYS)
    (folder / ".hydra").mkdir()
    note_start(folder, config)
    path = folder / ".hydra" / "started.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started": when}))
    return folder


def test_the_newest_run_is_the_one_that_began_last(tmp_path: Path) -> None:
    """Not the one whose name is the largest: clocks go back from summer time."""
    config = config_of(*TINY)
    day = tmp_path / "2026-10-25"
    unfinished(day / "02-50-00", config, "2026-10-25T00:50:00+00:00")
    newest = unfinished(day / "02-10-00", config, "2026-10-25T02:10:00+01:00")
    unfinished(day / "03-00-00", config_of(*TINY, "seed=5"), "2026-10-26T00:00:00+00:00")
    (day / "09-00-00" / "checkpoints").mkdir(parents=True)  # of something else
    assert _newest_alike(day / "now", config) == newest
    older = unfinished(day / "01-00-00", config, "gone")
    (older / ".hydra" / "started.json").unlink()
    OmegaConf.save(OmegaConf.create(asdict(config)), older / ".hydra" / "config.yaml")
    os.utime(older / ".hydra" / "config.yaml", (0, 0))
    assert start_of(older) == (datetime.fromtimestamp(0, UTC), config)
    assert _newest_alike(day / "now", config) == newest
    for other in ("02-50-00", "02-10-00"):
        shutil.rmtree(day / other)
    assert _newest_alike(day / "now", config) == older


@pytest.mark.parametrize("text", ["", "[" * 100_000, '{"started": 1}', "[]", '{"started": "x"}'])
def test_a_start_that_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    folder = unfinished(tmp_path / "day" / "time", config_of(*TINY), "2026-10-25T00:50:00+00:00")
    (folder / ".hydra" / "started.json").write_text(text)
    assert _newest_alike(tmp_path / "day" / "now", config_of(*TINY)) is None


def test_a_run_says_when_it_began(command: Command, tmp_path: Path) -> None:
    before = datetime.now(UTC)
    assert command(*TINY, "hydra.run.dir=run").code == 0
    began, config = start_of(tmp_path / "run")
    assert before <= began <= datetime.now(UTC) and config == config_of(*TINY)
