"""MLflow, in a database of the run's directory unless MLFLOW_TRACKING_URI is set.

`mlflow ui --backend-store-uri sqlite:///DIR/mlflow/mlflow.db` shows it.
"""

import csv
import logging
import os
import time
import warnings
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from trip_jax.tracking.tracker import TRACKERS, package

EXPERIMENT = "trip_jax"
STATUS = {"finished": "FINISHED", "interrupted": "KILLED"}  # all others are failures


@TRACKERS("mlflow")
class MLflow:
    """A run of the experiment trip_jax; scores.csv is one of its artifacts.

    A directory's own database is of that run alone. MLFLOW_TRACKING_URI names one for many runs.
    """

    def __init__(self, folder: Path):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with warnings.catch_warnings(action="ignore"):  # about how it is made
            for name in ("sqlalchemy", "alembic", "mlflow.entities"):
                package(name, "mlflow")
            self._package = package("mlflow", "mlflow")
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # not to tell of its tables
        self._folder = folder.absolute() / "mlflow"
        self._store = os.environ.get("MLFLOW_TRACKING_URI")

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        store = self._store or f"sqlite:///{self._folder / 'mlflow.db'}"
        with warnings.catch_warnings(action="ignore"):
            self._client = self._package.MlflowClient(store)
            kept = self._folder / "run_id"
            if not done or not kept.exists():
                kept.write_text(self._new_run(title, settings))
            self._id = kept.read_text()
            self._client.update_run(self._id, status="RUNNING")
            history = self._client.get_metric_history(self._id, "accuracy_mean")
            self._last = max((metric.step for metric in history), default=0)

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        if t <= self._last:  # a round that comes again
            return
        now = int(1000 * time.time())
        metrics = [self._package.entities.Metric(*one, now, t) for one in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def end(self, summary: Mapping[str, Any]) -> str | None:
        self._client.set_tag(self._id, "status", summary["status"])
        self._client.set_tag(self._id, "message", summary.get("message", ""))
        if scores := summary.get("scores"):
            called = summary.get("names") or range(len(scores))
            table = StringIO()
            rows = ((i, f"{score:.6g}") for i, score in zip(called, scores, strict=True))
            csv.writer(table, lineterminator="\n").writerows((("client", "score"), *rows))
            self._client.log_text(self._id, table.getvalue().rstrip("\n"), "scores.csv")
        self._client.set_terminated(self._id, STATUS.get(summary["status"], "FAILED"))
        database = f"sqlite:///{self._folder / 'mlflow.db'}"
        return None if self._store else f"look at it with: mlflow ui --backend-store-uri {database}"

    def close(self) -> None:
        self._client.set_terminated(self._id, "FAILED")

    def _new_run(self, title: str, settings: Mapping[str, Any]) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        artifacts = None if self._store else str(self._folder / "artifacts")
        number = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(EXPERIMENT, artifacts)
        )
        name, note = title.partition(":")[0], {"mlflow.note.content": title}
        run = self._client.create_run(number, run_name=name, tags=note).info.run_id
        settings = {key: str(value) for key, value in settings.items()}
        self._client.log_batch(
            run, params=[self._package.entities.Param(*s) for s in settings.items()]
        )
        return run
