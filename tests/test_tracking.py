"""Trackers: what a run tells them, and what the real packages write, read back with their own."""

import errno
import json
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import trip_jax
from tests.conftest import TINY, Command, rarely
from trip_jax.runs.round_log import COLUMNS
from trip_jax.settings.errors import InvalidSetting
from trip_jax.tracking import TRACKERS, Tracked

TITLE = "run: synthetic, 3 clients"
SETTINGS = {"n_clients": 3, "training.rounds": 4, "model.hidden": (8,), "resume": None}
SCORES = [0.25, 0.5, -0.125]
SUMMARY = {"title": TITLE, "status": "finished", "message": "", "rounds": 4, "scores": SCORES}
SUMMARY |= {"liars": [2], "final_accuracy": {"mean": 0.5, "std": 0.0}}


@dataclass
class Written:
    """What a tracker's files say."""

    rounds: dict[int, dict[str, float]] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    status: str = ""


def read_tensorboard(folder: Path) -> Written:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder / "tensorboard")).Reload()
    written = Written()
    for name in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(name)]
        assert len(set(steps)) == len(steps)
        for event in events.Scalars(name):
            written.rounds.setdefault(event.step, {})[name] = event.value

    def text(name: str) -> str:
        content: bytes = events.Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val[0]
        return content.decode()

    def table(name: str) -> list[tuple[str, str]]:
        return [
            (line.split(" | ")[0], line.split(" | ")[1]) for line in text(name).splitlines()[2:]
        ]

    written.settings = dict(table("settings"))
    written.status = text("status").split()[0]
    if "score" in events.Tags()["histograms"]:
        written.scores = [float(score) for _, score in table("scores")]
        histogram = events.Histograms("score")[-1].histogram_value
        assert (histogram.num, histogram.sum) == (len(SCORES), sum(SCORES))
    return written


def records_of(path: Path) -> Iterator[Any]:
    """The records of a file of W&B, whose frame is that of LevelDB's logs."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record, block = path.read_bytes(), 7, b"", 32768
    while at + 7 <= len(data):
        if block - at % block < 7:  # no room for a head
            at += block - at % block
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole, or its last part
            yield Record.FromString(record)
            record = b""


def read_wandb(folder: Path) -> Written:
    written, ids = Written(), set()

    def values(items: Iterable[Any]) -> dict[str, Any]:
        return {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}

    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in records_of(path):
            if record.HasField("run"):
                ids.add(record.run.run_id)
                settings = values(record.run.config.update)
                written.settings |= {name: str(value) for name, value in settings.items()}
            if record.HasField("history"):
                row = values(record.history.item)
                numbers = {name: row[name] for name in row if name in NUMBERS}
                written.rounds.setdefault(row["_step"], {}).update(numbers)
            if record.HasField("summary"):
                written.status = values(record.summary.update).get("status", written.status)
    assert len(ids) == 1
    for path in folder.glob("wandb/*/files/media/table/scores*.json"):
        written.scores = [row[1] for row in json.loads(path.read_text())["data"]]
    return written


def read_mlflow(folder: Path) -> Written:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("trip_jax").experiment_id])
    written = Written(settings=run.data.params, status=run.info.status.lower())
    for name in run.data.metrics:
        for metric in client.get_metric_history(run.info.run_id, name):
            assert name not in written.rounds.get(metric.step, {})
            written.rounds.setdefault(metric.step, {})[name] = metric.value
    table = pd.read_csv(Path(run.info.artifact_uri, "scores.csv"), index_col="client")
    written.scores = table["score"].tolist()
    return written


READERS: dict[str, Callable[[Path], Written]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow": read_mlflow,
}


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trip_jax.runs.directory.draw_figures", lambda *_: None)


NUMBERS = ("accuracy_mean", "loss_mean")


def numbers(t: int) -> dict[str, float]:
    return dict(zip(NUMBERS, (t / 8, 2 / t), strict=True))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory, in which nothing is written."""
    for name in os.environ:
        if name.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "home"
    assert {path.name for path in tmp_path.iterdir()} <= {"run"}


@pytest.mark.parametrize("name", ["tensorboard", *map(rarely, ("wandb", "mlflow"))])
@pytest.mark.usefixtures("home")
@pytest.mark.filterwarnings("ignore:codecs.open")  # by W&B, which Python 3.14 deprecates
def test_a_package_keeps_a_run_that_went_on(name: str, tmp_path: Path) -> None:
    packages = {"tensorboard": ("tensorboardX", "tensorboard"), "wandb": ("wandb",)}
    for package in packages.get(name, ("mlflow", "sqlalchemy", "alembic")):
        pytest.importorskip(package)
    before = TRACKERS[name](tmp_path / "run")
    before.start(TITLE, SETTINGS, done=0)
    for t in (1, 2, 3):
        before.round(t, numbers(t))
    before.end(SUMMARY | {"status": "interrupted", "rounds": 3})
    assert READERS[name](tmp_path / "run").status in ("interrupted", "killed")

    after = TRACKERS[name](tmp_path / "run")  # from a checkpoint after round 2
    after.start(TITLE, SETTINGS, done=2)
    for t in (3, 4):
        after.round(t, numbers(t))
    assert str(tmp_path / "run") in (after.end(SUMMARY) or "")

    written = READERS[name](tmp_path / "run")
    assert written.rounds == {t: pytest.approx(numbers(t)) for t in (1, 2, 3, 4)}
    assert written.scores == SCORES
    assert written.status == "finished"
    assert written.settings.items() >= {"n_clients": "3", "training.rounds": "4"}.items()


def test_tensorboard_has_the_numbers_of_rounds_csv(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    outcome = command(*TINY, "training.rounds=2", "hydra.run.dir=run", "track=tensorboard")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"tensorboard --logdir {tmp_path / 'run'}" in outcome.out
    rounds = pd.read_csv(tmp_path / "run" / "rounds.csv", index_col="round")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    for name in COLUMNS:
        values = [event.value for event in reader.Scalars(name)]
        assert values == pytest.approx(rounds[name].tolist(), rel=1e-4), name


class Recorder:
    """Notes what it hears in a file of the run's directory."""

    def __init__(self, folder: Path):
        self._path = folder / "heard.jsonl"

    def _note(self, *news: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(news) + "\n")

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        self._note("start", title, settings["training.rounds"], done)

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        self._note("round", t, sorted(numbers))

    def end(self, summary: Mapping[str, Any]) -> str:
        self._note("end", summary["status"], summary["message"], summary.get("scores"))
        return "everything is noted"


@pytest.fixture
def heard(
    monkeypatch: pytest.MonkeyPatch, kept_namesakes: None, tmp_path: Path
) -> Callable[[], list[Any]]:
    """What a tracker of the user's own was told by the run in run/."""
    monkeypatch.setattr(TRACKERS, "_named", dict(TRACKERS._named))
    TRACKERS("recorder")(Recorder)
    path = tmp_path / "run" / "heard.jsonl"
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


RECORDED = (*TINY, "hydra.run.dir=run", "track=recorder", "checkpoint.every=1")


def test_a_tracker_of_ones_own_hears_of_an_interrupted_run_and_of_its_end(
    command: Command,
    heard: Callable[[], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("trip_jax.runs.launch.anyone", lambda *asked: (True, True))
        assert command(*RECORDED, "training.rounds=2").code == 75
    title, *_, (_, *interrupted, scores) = heard()[0][1], heard()[-1]
    assert interrupted[0] == "interrupted" and "after round 1 of 2" in interrupted[1]
    assert len(scores) == 3
    outcome = command(*RECORDED, "training.rounds=2", "resume=auto")
    assert outcome.code == 0 and "everything is noted" in outcome.out.splitlines()
    summary = trip_jax.load_run(tmp_path / "run").summary
    assert heard() == [
        ["start", title, 2, 0],
        ["round", 1, sorted(COLUMNS)],
        ["end", *interrupted, scores],
        ["start", summary["title"], 2, 1],
        ["round", 2, sorted(COLUMNS)],
        ["end", "finished", "", summary["scores"]],
    ]


@pytest.mark.thorough
def test_a_tracker_hears_of_a_model_that_diverged(
    command: Command, heard: Callable[[], list[Any]]
) -> None:
    settings = ("training.rounds=2", "distribution=noisy_labels", "training.learning_rate=1e12")
    assert command(*RECORDED, *settings).code == 2
    kind, status, message, scores = heard()[-1]
    assert (kind, status, len(scores)) == ("end", "stopped", 3)
    assert "no longer finite" in message


def test_a_tracker_hears_of_a_run_that_left_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError) as raised,
        Tracked(Recorder(tmp_path), "recorder") as tracked,
    ):
        tracked.start(TITLE, SETTINGS, 0)
        tracked.round(1 // 0, {})
    _, told = (tmp_path / "heard.jsonl").read_text().splitlines()
    assert json.loads(told) == ["end", "failed", str(raised.value), None]


@pytest.mark.parametrize("name", ["tensorboard", *map(rarely, ("wandb", "mlflow"))])
@pytest.mark.usefixtures("home")
def test_a_full_disk_costs_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in {"tensorboard": ["tensorboardX"], "mlflow": ["mlflow", "sqlalchemy"]}.get(
        name, [name]
    ):
        pytest.importorskip(package)
    environment = dict(os.environ)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tracker: Any = TRACKERS[name](tmp_path / "run")
    with Tracked(tracker, name) as tracked:
        tracked.start(TITLE, SETTINGS, 0)
        if name == "tensorboard":
            tracker._writer._py_recordio_writer.flush = fail
        elif name == "wandb":
            tracker._run.log = fail
        else:
            tracker._client.log_batch = fail
        for t in (1, 2):
            tracked.round(t, numbers(t))
        tracked.summary = SUMMARY
    if name == "mlflow":
        assert tracker._client.get_run(tracker._id).info.status == "FAILED"
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "No space left on device): the run does without it" in said
    assert {k: os.environ.get(k) for k in environment} == environment
    assert "WANDB_CACHE_DIR" not in os.environ


def test_a_run_that_never_began_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(OSError), Tracked(Recorder(tmp_path), "recorder"):
        raise OSError
    assert not (tmp_path / "heard.jsonl").exists()


@pytest.mark.parametrize("method", ["start", "round", "end"])
def test_a_run_outlives_its_tracker(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    method: str,
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("the server is\naway")

    monkeypatch.setattr(Recorder, method, fail)
    with Tracked(Recorder(tmp_path), "recorder") as tracked:
        tracked.start(TITLE, SETTINGS, 0)
        for t in (1, 2):
            tracked.round(t, numbers(t))
        tracked.summary = SUMMARY
    said = "track=recorder failed (the server is away): the run does without it.\n"
    assert capsys.readouterr() == (said, "")
    path = tmp_path / "heard.jsonl"
    news = [json.loads(line)[0] for line in path.read_text().splitlines()] if path.exists() else []
    assert news == {"start": [], "round": ["start"], "end": ["start", "round", "round"]}[method]


@pytest.mark.parametrize(
    ("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
def test_an_absent_package_is_told_before_any_work(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, package: str
) -> None:
    for module in [*sys.modules]:
        if module.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("trip_jax.runs.launch.prepare", None)
    outcome = command(*TINY, "hydra.run.dir=run", f"track={name}")
    assert outcome.code == 2
    assert f"pip install '.[{name}]'" in outcome.error and package in outcome.error
    assert not (tmp_path / "run" / ".hydra").exists()


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"track must be one of none, .*wandb, not 'visdom'"):
        trip_jax.Config(track="visdom")
