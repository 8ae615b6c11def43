"""Weights & Biases, offline unless WANDB_MODE=online is set.

`wandb sync DIR/wandb/offline-run-*` uploads what was written offline.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trip_jax.tracking.tracker import TRACKERS, package


@TRACKERS("wandb")
class WeightsAndBiases:
    """A run of the project trip_jax, or of WANDB_PROJECT; its scores are a table."""

    def __init__(self, folder: Path):
        self._package = package("wandb", "wandb")
        self._folder = folder.absolute() / "wandb"
        self._added: list[str] = []

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._keep_inside()
        kept = self._folder / "run_id"
        if not done or not kept.exists():
            kept.write_text(secrets.token_hex(4))
        quietly = self._package.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_stats=True,
            x_save_requirements=False,
        )
        self._run = self._package.init(
            project=os.environ.get("WANDB_PROJECT", "trip_jax"),
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(self._folder.parent),
            name=title.partition(":")[0],
            notes=title,
            config=dict(settings),
            id=kept.read_text(),
            resume="allow",
            settings=quietly,
        )

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=t)

    def end(self, summary: Mapping[str, Any]) -> str | None:
        plain = {k: v for k, v in summary.items() if isinstance(v, str | int | float)}
        self._run.summary.update(plain)
        if scores := summary.get("scores"):
            called = summary.get("names") or range(len(scores))
            rows = [[called[i], score, i in summary["liars"]] for i, score in enumerate(scores)]
            table = self._package.Table(columns=["client", "score", "liar"], data=rows)
            self._run.log({"scores": table}, step=summary["rounds"])
        self._run.finish(exit_code=int(summary["status"] != "finished"))
        self.close()
        written = self._run.settings
        return (
            f"upload it with: wandb sync {written.sync_dir}" if written.mode == "offline" else None
        )

    def close(self) -> None:
        for name in self._added:
            os.environ.pop(name, None)
        self._package.teardown()  # the process that it talks to

    def _keep_inside(self) -> None:
        """Have W&B write nothing into the home directory and report nothing of itself."""
        cache = str(self._folder / "cache")
        wanted = {"WANDB_CACHE_DIR": cache, "WANDB_DATA_DIR": cache}
        wanted["WANDB_ERROR_REPORTING"] = "false"
        self._added = [name for name in wanted if name not in os.environ]
        os.environ.update({name: wanted[name] for name in self._added})
