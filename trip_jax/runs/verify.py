"""Whether a run's numbers come out again: `python -m trip_jax.run --verify DIR`."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from trip_jax.learning.devices import available
from trip_jax.learning.distributed import Distributed
from trip_jax.results.dataset import to_dataset
from trip_jax.runs.directory import describe_device
from trip_jax.runs.prepare import prepare
from trip_jax.runs.provenance import git_revision, result_settings, versions
from trip_jax.runs.reading import load_run
from trip_jax.runs.resume import RunCheckpoints
from trip_jax.runs.schema import config_of_run
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_code import refuse_own_code
from trip_jax.simulation.history import Snapshot
from trip_jax.simulation.observer import Observer


@dataclass(frozen=True)
class Verification:
    """What repeating a run found: whether its results are the same.

    Attributes:
        first, last: the rounds that were run again, from 1.
        differences: the largest one of each quantity that is not the same bit for bit, of those
            that the kept run and the repetition both have.
        changed: what is not as it was when the run was made: versions, revision, device.
    """

    first: int
    last: int
    differences: dict[str, float]
    changed: list[str]

    def __str__(self) -> str:
        one = self.first == self.last
        rounds = f"round {self.last}" if one else f"rounds {self.first} to {self.last}"
        give = f"{rounds}, run again, give{'s' * one}"
        if not self.differences:
            return f"{give} the same numbers, bit for bit."
        found = ", ".join(f"{name} by up to {most:.3g}" for name, most in self.differences.items())
        cause = f" (changed since then: {', '.join(self.changed)})" if self.changed else ""
        return f"{give} other numbers: {found}{cause}."


def verify(folder: Path) -> Verification:
    """Run the rounds after a run's newest checkpoint again, all if it has none, and compare.

    Raises:
        InvalidSetting: the directory holds no run that is over, or its data are not to be had.
    """
    kept = load_run(folder)
    then = config_of_run(folder, kept.summary)
    refuse_own_code(folder, result_settings(then))
    if "devices" not in kept.summary:
        raise InvalidSetting(f"{folder} is of an older version, which did not write what it takes.")
    if kept.summary["status"] == "interrupted":
        raise InvalidSetting(f"{folder} holds an unfinished run: finish it with resume=auto first.")
    config = replace(then, devices="all", distributed=Distributed())
    with suppress(InvalidSetting):  # there are fewer here
        available(kept.summary["devices"])
        config = replace(config, devices=kept.summary["devices"])
    last = int(kept.summary["rounds"])
    simulation, federation = prepare(config)
    past = RunCheckpoints(folder, config, simulation).newest()
    # Right after it a model diverged, or updates of the rounds before it are gone.
    if past and (len(past.records) == last or simulation.keeps_updates):
        past = None
    result = simulation.run(_Until(last), past=past, progress=False)
    again = to_dataset(result, federation, kept.data.attrs.get("title", ""))
    differences = {
        str(name): _difference(values.values, again[name].values)
        for name, values in kept.data.data_vars.items()
        if name in again  # a version before or after this one may have written others
    }
    was = kept.summary["versions"] | {name: kept.summary[name] for name in ("revision", "device")}
    now = versions() | {"revision": git_revision(), "device": describe_device(result)}
    return Verification(
        first=len(past.records) + 1 if past else 1,
        last=last,
        differences={name: most for name, most in differences.items() if most},
        changed=[name for name in now if was.get(name) != now[name]],
    )


class _Until(Observer):
    """Ends a run after so many rounds."""

    def __init__(self, rounds: int):
        self._rounds = rounds

    def on_round(self, past: Snapshot) -> bool:
        return len(past.records) == self._rounds


def _difference(was: Any, now: Any) -> float:
    """The largest difference between two arrays; infinite where only one of them is NaN."""
    if np.array_equal(was, now, equal_nan=True):
        return 0.0
    was, now = np.asarray(was, float), np.asarray(now, float)
    if was.shape != now.shape:
        return float("inf")
    alike = (was == now) | (np.isnan(was) & np.isnan(now))
    return float(np.max(np.nan_to_num(np.where(alike, 0, np.abs(was - now)), nan=np.inf)))
