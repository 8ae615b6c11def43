"""Executions of coalitions that survive an interruption, also those of the chunk under way."""

import time
from collections.abc import Callable

import numpy as np

from trip_jax.runs.checkpoints import Checkpoints
from trip_jax.runs.interruption import Interruption
from trip_jax.truth.progress import ExecutionProgress
from trip_jax.truth.reexecution import Begun
from trip_jax.truth.shapley_value import GroundTruth

SECONDS_BETWEEN_CHECKPOINTS = 60.0


class KeptChunk:
    """Keeps a chunk of executions on disk while it runs, so that an interruption loses little.

    Args:
        checkpoints: where the chunk is kept.
        interruption: heeded once the chunk is kept.
    """

    def __init__(self, checkpoints: Checkpoints, interruption: Interruption):
        self._checkpoints, self._interruption = checkpoints, interruption
        self._saved, self._step = time.monotonic(), 0

    def begun(self) -> Begun | None:
        """The chunk of executions that an interrupted call kept; None if there is none."""
        kept = self._checkpoints.newest()[0]
        if kept is None:
            return None
        self._step = int(kept["step"])
        return Begun(kept["trains"], int(kept["rounds"]), kept["models"])

    def keep(self, begun: Begun) -> None:
        """Keep the chunk after a round if enough time has passed or the work is to end."""
        ends = self._interruption.asked
        if ends or time.monotonic() > self._saved + SECONDS_BETWEEN_CHECKPOINTS:
            self._step += 1
            arrays = {"trains": begun.trains, "models": np.asarray(begun.models)}
            numbers = {"rounds": np.asarray(begun.rounds), "step": np.asarray(self._step)}
            self._checkpoints.save(self._step, arrays | numbers)
            self._saved = time.monotonic()
        self._interruption.heed()

    def remove(self) -> None:
        """Remove the kept chunk, once all executions are finished."""
        self._checkpoints.remove()


def executed(
    truth_of: Callable[..., GroundTruth], what: str, finished: Checkpoints, chunk: Checkpoints
) -> tuple[GroundTruth, float]:
    """A truth and the seconds that it took, interrupted calls included.

    Args:
        truth_of: gives the truth; it takes the options of `Executor.execute`.
        what: the name of what is executed, for the line of progress.
        finished: where the utilities of finished executions are kept; it is for the caller to
            remove.
        chunk: the checkpoints of the chunk that is being executed.

    Raises:
        Interrupted: by SIGTERM or SIGINT, once what is done is kept.
    """
    kept = finished.newest()[0] or {"finished": None, "seconds": np.zeros(())}
    began = time.perf_counter() - float(kept["seconds"])

    def seconds() -> float:
        return time.perf_counter() - began

    def keep(utilities: np.ndarray) -> None:
        kept_seconds = np.asarray(seconds())
        finished.save(len(utilities), {"finished": utilities, "seconds": kept_seconds})
        interruption.heed()

    with Interruption("these executions") as interruption, ExecutionProgress(what) as progress:
        begun = KeptChunk(chunk, interruption)
        truth = truth_of(
            finished=kept["finished"],
            begun=begun.begun(),
            on_chunk=keep,
            on_round=begun.keep,
            on_progress=progress.report,
        )
    begun.remove()
    return truth, seconds()
