"""What a framework is asked to do, and what it tells of it: files in JSON, as the standard library
reads and writes them, since every framework lives in an environment of its own."""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar


class Task:
    """A federation to be run for some rounds.

    Args:
        path: of the JSON file with `began`, seconds since the epoch when the process was started;
            `protocol`, `clients`, `rounds`, `epochs`, `batch`, `learning_rate`, `seed`; `channels`
            and `hidden`, the network; `data`, an .npz file of images, labels, who owns them and the
            first model; `settings`, the same for trip_jax; and `answer`, the JSON file to write.
    """

    def __init__(self, path: str):
        self.asked: dict[str, Any] = json.loads(Path(path).read_text())
        self._rounds: list[tuple[float, float, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        try:
            return self.asked[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def end_round(self, samples: int, steps: int) -> None:
        """Note the time, and the examples and minibatches that were trained on since the start."""
        self._rounds.append((time.time() - self.began, cpu_seconds(), samples, steps))

    def answer_with(self, accuracy: float, *packages: str) -> None:
        """Write what there is to tell.

        Args:
            accuracy: of the last model on all test images; of gossip, the clients' mean.
            packages: whose versions are named, the framework first.
        """
        versions = {name: version(name) for name in packages}
        told = {"rounds": self._rounds, "accuracy": accuracy, "versions": versions}
        Path(self.asked["answer"]).write_text(json.dumps(told))


def cpu_seconds() -> float:
    """What this process and all below it have spent; 0 where there is no /proc."""
    parent, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            of = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parent[pid], ticks[pid] = int(of[1]), int(of[11]) + int(of[12])
    family, new = set(), {os.getpid()}
    while new:
        family |= new
        new = {pid for pid, above in parent.items() if above in new}
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


Kind = TypeVar("Kind", bound="Task")


def run_task(run: Callable[[Kind], None], kind: type[Kind]) -> None:
    """Do what the file named on the command line asks for."""
    run(kind(sys.argv[1]))
