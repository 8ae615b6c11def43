"""All units of the queue, the most valuable first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from experiments.paper.cells import CellStudy
from experiments.paper.paper_values import DISTRIBUTIONS
from experiments.paper.queue.cell_units import BORDERS, CELLS, CellUnits
from experiments.paper.queue.small_world_units import FIRST_K, LEVELS, SmallWorldUnits
from experiments.paper.queue.unit import Unit
from experiments.paper.small_world import SmallWorldStudy
from trip_jax.config import Config

SEEDS = (0, 1, 2)

WORLD = (
    ("ws100", "iid", "run"),
    *(("correlation", level, "run") for level in LEVELS),
    ("dishonest", "iid", "lies"),
)
"""Claim, case and part of the units of 100 clients that stand before removal."""


@dataclass(frozen=True)
class Block:
    """Units of one federation, which are made when they are wanted."""

    prefix: str  # of their names
    parts: Sequence[str]
    make: Callable[[], Iterable[Unit]]

    @property
    def names(self) -> list[str]:
        """Of its units."""
        return [f"{self.prefix}/{part}" for part in self.parts]


class Queue:
    """The paper's experiments at one scale.

    Args:
        scale: "paper", or "smoke": a test.
        folder: where runs are kept; the folders in it are what `out=` of single experiments takes.
        overrides: settings of all federations.
    """

    def __init__(self, scale: str, folder: Path, overrides: Sequence[str] = ()):
        self._scale, self._folder, self._overrides = scale, folder, tuple(overrides)
        smoke = scale == "smoke"
        self._datasets = ("digits",) if smoke else ("fashion_mnist", "cifar10")
        self._model = "mlp" if smoke else "cnn"
        self._cell_config = cache(self._composed_cell)
        self._world_config = cache(self._composed_world)

    def blocks(self) -> Iterator[Block]:
        """Of all claims, the first seed first."""
        for seed in SEEDS:
            for dataset in self._datasets:
                for case in CELLS:
                    yield self._cell_block("tables", dataset, seed, case)
                for claim, which, part in WORLD:
                    yield self._world_block(claim, dataset, seed, which, part)
                for k in self._counts(first=True):
                    yield self._world_block("removal", dataset, seed, f"k{k}", "removals")
            for dataset in self._datasets:
                for k in self._counts(first=False):
                    yield self._world_block("removal", dataset, seed, f"k{k}", "removals")
                for distribution in DISTRIBUTIONS:
                    case = (distribution, "regular")
                    yield self._cell_block("baselines", dataset, seed, case)

    def units(self, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Unit]:
        """The units whose names are wanted; settings of others are not composed."""
        for block in self.blocks():
            if any(map(wanted, block.names)):
                yield from (unit for unit in block.make() if wanted(unit.name))

    def _cell_block(self, claim: str, dataset: str, seed: int, case: tuple[str, str]) -> Block:
        def make() -> Iterable[Unit]:
            cell = self._cell(dataset, seed, case)
            return cell.of_table() if claim == "tables" else cell.of_baselines()

        parts = ("run", "truth", "methods") if claim == "tables" else ("truth", "methods")
        return Block(f"{claim}/{dataset}/{'-'.join(case)}/seed{seed}", parts, make)

    def _world_block(self, claim: str, dataset: str, seed: int, which: str, part: str) -> Block:
        def make() -> Iterable[Unit]:
            world = self._world(dataset, seed)
            match claim:
                case "ws100":
                    return [world.run]
                case "correlation":
                    return [world.correlated(which)]
                case "dishonest":
                    return [world.dishonest()]
                case _:
                    return [world.removed(int(which.removeprefix("k")))]

        return Block(f"{claim}/{dataset}/{which}/seed{seed}", (part,), make)

    def config_of_most(self) -> Config:
        """Settings of a cell whose network most of the work is with."""
        return self._cell_config(self._datasets[0], CELLS[0])

    def _counts(self, first: bool) -> Sequence[int]:
        """How many clients are removed."""
        if self._scale == "smoke":
            return (2,) if first else (4,)
        return FIRST_K if first else tuple(k for k in range(10, 100, 10) if k not in FIRST_K)

    def _cell(self, dataset: str, seed: int, case: tuple[str, str]) -> CellUnits:
        config = replace(self._cell_config(dataset, case), seed=seed)
        return CellUnits(self._cell_study(dataset, seed, case), config, case)

    def _cell_study(self, dataset: str, seed: int, case: tuple[str, str]) -> CellStudy:
        distribution, topology = case
        more = (f"borders={BORDERS}", f"distribution={distribution}", f"topology={topology}")
        arguments = self._arguments(dataset, seed, "tables")
        return CellStudy("topologies", (*arguments, *more))

    def _composed_cell(self, dataset: str, case: tuple[str, str]) -> Config:
        distribution, topology = case
        which = (f"distribution={distribution}", f"topology={topology}")
        return self._cell_study(dataset, SEEDS[0], case).config(
            dataset, self._model, SEEDS[0], *which
        )

    def _world(self, dataset: str, seed: int) -> SmallWorldUnits:
        config = replace(self._world_config(dataset), seed=seed)
        return SmallWorldUnits(self._world_study(dataset, seed), config)

    def _world_study(self, dataset: str, seed: int) -> SmallWorldStudy:
        return SmallWorldStudy("paper", self._arguments(dataset, seed, "large"))

    def _composed_world(self, dataset: str) -> Config:
        study = self._world_study(dataset, SEEDS[0])
        return study.config(dataset, self._model, SEEDS[0])

    def _arguments(self, dataset: str, seed: int, folder: str) -> Sequence[str]:
        which = (f"scale={self._scale}", f"dataset={dataset}", f"model={self._model}")
        out = f"out={self._folder / folder}"
        return (*which, f"seed={seed}", out, *self._overrides)
