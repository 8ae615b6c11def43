"""Works down the queue within a budget of time; what is finished is kept at any kill."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.paper.queue.records import Record, Records, made_here, taken_from
from experiments.paper.queue.unit import Unit
from experiments.paper.queue.work import Rates
from trip_jax.runs.directory import whole
from trip_jax.runs.interruption import Deadline
from trip_jax.settings.errors import Interrupted
from trip_jax.simulation.progress import duration

MARGIN = 1.25
"""Of estimates, before they are relied on."""


@dataclass
class Worker:
    """Computes units one after another.

    Args:
        folder: the state folder.
        records: what is finished.
        rates: of this device.
    """

    folder: Path
    records: Records
    rates: Rates

    def pending(self, units: Sequence[Unit]) -> list[Unit]:
        """What is to be computed, each after what it needs; results that stand beside the
        documentation are taken first."""
        found: dict[str, Unit] = {}
        for unit in units:
            record = self.records.get(unit)
            if (record and not record.made["source"]) or self._take(unit):
                continue
            for need in unit.needs:
                if not need.kept():
                    found.setdefault(need.name, replace(need, for_others=True))
            found[unit.name] = unit
        return list(found.values())

    def _take(self, unit: Unit) -> bool:
        taken = unit.imported()
        if taken:
            rows, source = taken
            record = Record(unit.name, unit.settings, rows, taken_from(unit, source))
            self.records.keep(record)
        return taken is not None

    def left(self, unit: Unit) -> float:
        """Seconds that a unit still takes here, about."""
        whole = self.rates.starting + self.rates.seconds(unit.work, unit.kind)
        return max(whole - self.spent(unit), self.least(unit))

    def least(self, unit: Unit) -> float:
        """Seconds until a unit keeps something for the first time."""
        step = unit.step or unit.work
        return self.rates.starting + self.rates.seconds(step, unit.kind)

    def fits(self, unit: Unit, seconds: float) -> bool:
        """Whether a unit gets anywhere in the time that is left."""
        return MARGIN * min(self.left(unit), self.least(unit)) <= seconds

    def work(self, pending: Sequence[Unit], deadline: Deadline | None) -> Iterator[Unit]:
        """Compute what fits, in order; yields each unit that is finished.

        Raises:
            Interrupted: by a signal.
        """
        unfinished: set[str] = set()
        for k, unit in enumerate(pending):
            if unit.for_others and unit.kept():
                continue
            if unfinished.intersection(need.name for need in unit.needs if not need.kept()):
                unfinished.add(unit.name)
                continue
            if deadline and not self.fits(unit, deadline.left):
                unfinished.add(unit.name)
                continue
            left = duration(self.left(unit))
            print(f"[{k + 1} of {len(pending)}] {unit.name}: about {left}", flush=True)
            try:
                with deadline or nullcontext():
                    self._compute(unit)
            except Interrupted:
                if not (deadline and deadline.reached):
                    raise
                print(f"{unit.name}: the budget is spent; it goes on from its checkpoint.")
                return
            yield unit

    def _compute(self, unit: Unit) -> None:
        before, began = self.spent(unit), time.monotonic()
        try:
            rows = unit.compute()
        finally:
            seconds = before + time.monotonic() - began
            self._note(unit, seconds)
        record = Record(unit.name, unit.settings, rows, made_here(unit, seconds))
        self.records.keep(record)
        self.rates = self.rates.corrected(unit.work, unit.kind, seconds)
        self.rates.write(self.folder / "rates.json")

    def spent(self, unit: Unit) -> float:
        """Seconds that a unit has taken in earlier calls."""
        path = self.folder / "seconds.json"
        return float(json.loads(path.read_text()).get(unit.name, 0)) if path.exists() else 0.0

    def _note(self, unit: Unit, seconds: float) -> None:
        path = self.folder / "seconds.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        with whole(path) as unfinished:
            unfinished.write_text(json.dumps(known | {unit.name: round(seconds, 3)}, indent=1))
