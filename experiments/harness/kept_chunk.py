"""The chunk of executions that is not finished yet, kept about once a minute."""

import time

import numpy as np

from experiments.harness.kept_runs import KeptRun
from trip_jax.runs.interruption import Interruption
from trip_jax.truth.reexecution import Begun

SECONDS_BETWEEN_CHECKPOINTS = 60.0


class KeptChunk:
    """Keeps the models of a chunk, which may take a hundred times the memory of one model.

    Args:
        run: the federation that is executed again.
        part: what the executions are for.
        interruption: heeded once the chunk is kept.
    """

    def __init__(self, run: KeptRun, part: str, interruption: Interruption):
        self._checkpoints = run.checkpoints(f"{part}.chunk", keep=1)
        self._interruption = interruption
        self._saved, self._step = time.monotonic(), 0

    def begun(self) -> Begun | None:
        """What an interrupted call left."""
        kept = self._checkpoints.newest()[0]
        if kept is None:
            return None
        self._step = int(kept["step"])
        return Begun(kept["trains"], int(kept["rounds"]), kept["models"])

    def keep(self, begun: Begun) -> None:
        """After a round: keep the chunk if it is time to, or if the work is to end."""
        ends = self._interruption.asked
        if ends or time.monotonic() > self._saved + SECONDS_BETWEEN_CHECKPOINTS:
            self._step += 1
            arrays = {"trains": begun.trains, "models": np.asarray(begun.models)}
            numbers = {"rounds": np.asarray(begun.rounds), "step": np.asarray(self._step)}
            self._checkpoints.save(self._step, arrays | numbers)
            self._saved = time.monotonic()
        self._interruption.heed()

    def remove(self) -> None:
        """Once all executions are finished."""
        self._checkpoints.remove()
