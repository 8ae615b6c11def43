"""The end of a sweep: its table on the terminal, and what became of jobs that failed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from trip_jax.runs.sweep import FAILED, OF_SCORE, TABLE, write_table
from trip_jax.simulation.progress import columns
from trip_node.deployment.scores import percent
from trip_node.settings.lines import say

if TYPE_CHECKING:
    import pandas


class SweepTable(Callback):
    """A callback of Hydra that prints the table of a sweep when all its jobs are over."""

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table; exit code 2 if a job failed."""
        folder = Path(config.hydra.sweep.dir)
        jobs = write_table(folder)
        if jobs.empty:
            return
        print(f"\n{_to_text(jobs)}\n\ntable in {folder / TABLE}")
        if len(done := jobs.job[jobs.accuracy.notna()]) > 1:
            which = "" if len(done) == len(jobs) else f"/{{{','.join(done)}}}/"
            print(f"beside each other: trip-jax compare {folder}{which}")
        failed = jobs[jobs.status.isin(FAILED)]
        for name, message in zip(failed.job, failed.message, strict=True):
            say(f"error: job {name}: {message}", sys.stderr)
        if len(failed):
            sys.exit(2)


def _to_text(jobs: "pandas.DataFrame") -> str:
    """The table as lines of text; a score with its client and its share of all."""
    has_scores = jobs.accuracy.notna()
    scores = {}
    for end in ("highest", "lowest"):
        of_score = zip(*(jobs[f"{end}_{what}"] for what in OF_SCORE), has_scores, strict=True)
        scores[f"{end} score"] = [
            f"{client}: {score:.3f} ({percent(share)})" if there else "-"
            for client, score, share, there in of_score
        ]
    shown = jobs.loc[:, :"accuracy"].assign(**scores)
    width = columns() if sys.stdout.isatty() else None  # more columns stand beneath the others
    return shown.to_string(index=False, na_rep="-", float_format="{:.3f}".format, line_width=width)
