# /// script
# requires-python = ">=3.10"
# dependencies = ["pydvl==0.10.0"]
# ///
"""pyDVL's Shapley values of games known by the utilities of all their coalitions, for
`experiments.estimators`: reads `tables` [G, 2^n], `budgets` and `seeds` from one .npz file, writes
`names` [E], `values` [B, E, G, seeds, n] and `seconds` [B, E] to another.

A coalition that comes again is looked up and costs nothing, as with pyDVL's cache. The samplers
stop with the sample that reaches the budget, which may be m coalitions too late.
"""

import logging
import sys
import time
from itertools import product
from typing import Any

import numpy as np
from pydvl.utils import Status
from pydvl.valuation import samplers
from pydvl.valuation.games import DummyGameDataset
from pydvl.valuation.methods import ShapleyValuation
from pydvl.valuation.samplers.powerset import SequentialIndexIteration
from pydvl.valuation.samplers.stratified import RandomSizeIteration
from pydvl.valuation.stopping import StoppingCriterion
from pydvl.valuation.utility.base import UtilityBase


class Table(UtilityBase):
    def __init__(self, utilities: np.ndarray):
        self._utilities = utilities
        self.seen: set[int] = set()

    def __call__(self, sample: Any) -> float:
        members = [] if sample is None else sample.subset
        coalition = sum(1 << int(j) for j in members)
        self.seen.add(coalition)
        return float(self._utilities[coalition])


class Budget(StoppingCriterion):
    def __init__(self, table: Table, coalitions: int):
        super().__init__()
        self._table, self._coalitions = table, coalitions

    def _check(self, result: Any) -> Status:
        done = len(self._table.seen) >= self._coalitions
        return Status.Converged if done else Status.Pending


def stratified(seed: int) -> Any:
    sizes = samplers.ConstantSampleSize(1)
    return samplers.StratifiedSampler(
        sizes, RandomSizeIteration, index_iteration=SequentialIndexIteration, seed=seed
    )


MAKERS = {
    "PermutationSampler": lambda seed: samplers.PermutationSampler(seed=seed),
    "AntitheticPermutationSampler": lambda s: samplers.AntitheticPermutationSampler(seed=s),
    "StratifiedSampler": stratified,
}


def values(table: np.ndarray, budget: int, name: str, seed: int) -> np.ndarray:
    """An estimate of the Shapley values [n] by pyDVL."""
    utility, n = Table(table), len(table).bit_length() - 1
    valuation = ShapleyValuation(utility, MAKERS[name](seed), Budget(utility, budget))
    found = valuation.fit(DummyGameDataset(n)).result
    return found.values[np.argsort(found.indices)]


if __name__ == "__main__":
    logging.disable()
    with np.load(sys.argv[1]) as asked:
        tables, budgets, seeds = asked["tables"], asked["budgets"], range(int(asked["seeds"]))
    cases = list(product(budgets.tolist(), MAKERS))
    found, seconds = [], []
    for budget, name in cases:
        began = time.perf_counter()
        found.append([[values(one, budget, name, seed) for seed in seeds] for one in tables])
        seconds.append((time.perf_counter() - began) / len(tables) / len(seeds))
    shape = len(budgets), len(MAKERS)
    np.savez(
        sys.argv[2],
        names=list(MAKERS),
        values=np.reshape(found, (*shape, *np.shape(found)[1:])),
        seconds=np.reshape(seconds, shape),
    )
