"""Several processes that share one run, usually one a host."""

from dataclasses import dataclass

import jax

from trip_jax.settings import count, measured, require
from trip_jax.settings.brief import Brief
from trip_jax.settings.declared import check_types
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.field_texts import with_field_texts


@with_field_texts
@dataclass(frozen=True, repr=False)
class Distributed(Brief):
    """Processes that share one run, usually one a host; all are given the same configuration."""

    coordinator: str | None = None  # HOST:PORT of the first; "auto": Slurm, a TPU pod, ... say all
    processes: int | None = measured(None, "processes")  # how many there are
    process: int | None = measured(None, "number of a process")  # this one's number, from 0

    def __post_init__(self) -> None:
        check_types("distributed", self)
        count("distributed.processes", self.processes, 1)
        count("distributed.process", self.process, 0)
        numbers = self.processes, self.process
        if self.coordinator in (None, "auto"):
            require(
                numbers == (None, None),
                "distributed.processes and .process go with distributed.coordinator=HOST:PORT.",
            )
            return
        require(
            None not in numbers,
            f"distributed.coordinator={self.coordinator} needs distributed.processes and "
            "distributed.process.",
        )
        require(
            self.coordinator.rpartition(":")[2].isdecimal() and ":" in self.coordinator,
            f"distributed.coordinator must be HOST:PORT or auto, not {self.coordinator!r}.",
        )
        require(
            (self.process or 0) < (self.processes or 1),
            f"distributed.process must lie between 0 and {(self.processes or 1) - 1}, not "
            f"{self.process}.",
        )


def join(distributed: Distributed) -> None:
    """Become one of several processes whose devices share all work, if there are several.

    Raises:
        InvalidSetting: the others are not found.
    """
    if distributed.coordinator is None or jax.distributed.is_initialized():
        return
    auto = distributed.coordinator == "auto"
    try:
        jax.distributed.initialize(
            None if auto else distributed.coordinator, distributed.processes, distributed.process
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidSetting(
            f"distributed.coordinator={distributed.coordinator} does not work: {reason}"
        ) from error
