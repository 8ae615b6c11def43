"""What each of several devices holds and receives, by the compiler's plan.

    python -m experiments.divided [clients=1000] [devices=2,4,8] [out=DIR] [SETTING=VALUE ...]

The programs of a round of the paper's small world, with 50 examples a client and 50 test images,
are compiled for so many devices and not run, so that parts of a CPU can stand for accelerators.
With shard_models=false each device holds the models of all clients, and an all_gather brings it
those that other devices trained. With shard_models=true it holds the models of its own clients, and
receives those that these mix. Writes CSV and Markdown.
"""

from collections.abc import Sequence
from typing import Any

import pandas

from experiments.harness import report
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.kept_runs import compose_config
from experiments.harness.report import Report
from trip_jax.learning.devices import available
from trip_jax.runs.prepare import prepare
from trip_jax.settings.capacity import GIB
from trip_jax.settings.errors import InvalidSetting

SETTINGS = ("clients", "devices", "out")
EXAMPLES = 50
ROUND = ("training.local_epochs=1", "dataset.test_size=50", "memory_limit=100000")
"""More memory than there is may be planned, since nothing runs."""


def divided(arguments: Sequence[str]) -> None:
    """Plan rounds on several devices, with models whole and divided; print and write the plan."""
    request = Request("divided", arguments, SETTINGS)
    n = request.number("clients", 1000, least=2)
    counts = request.numbers("devices", 2, 4, 8)
    folder = request.folder("outputs/divided")
    available(max(counts))  # a CPU becomes so many devices once
    size = (f"n_clients={n}", f"dataset.train_size={n * EXAMPLES}")
    rows = []
    for count in counts:
        settings = (*ROUND, *size, f"devices={count}", *request.overrides)
        rows.append({"clients": n, "devices": count, **_planned(settings, count)})
        print(", ".join(f"{key} {value:,.4g}" for key, value in rows[-1].items()), flush=True)
    frame = pandas.DataFrame(rows)
    lines = report.table(
        "devices | GiB, all models on each | GiB, divided | models received | received, divided",
        "{devices} | {GiB_whole:.1f} | {GiB_divided:.1f} | {received_whole} | {received_divided}",
        rows,
    )
    title = f"ws100, {n:,} clients, {EXAMPLES} examples each, by the compiler's plan"
    written = Report.of(request, folder)
    print(f"{written.write(frame, 'Divided models', title, lines)}\nreport in {folder}")


def _planned(settings: Sequence[str], devices: int) -> dict[str, Any]:
    """GiB of each device, and how many models it receives in a round."""
    found: dict[str, Any] = {}
    for name, divides in (("whole", "false"), ("divided", "true")):
        config = compose_config("ws100", [*settings, f"shard_models={divides}"])
        simulation, _ = prepare(config)
        _, planned = simulation.plan()
        if planned is None:
            raise InvalidSetting("The compiler plans no memory here: choose JAX_PLATFORMS=cpu.")
        on_each = planned.rounds / (devices if planned.held else 1)  # on a CPU a sum
        found[f"GiB_{name}"] = on_each / GIB
        n = config.n_clients
        found[f"received_{name}"] = n - -(-n // devices)
    (shards,) = simulation.placement.learning
    found["received_divided"] = sum(rows.shape[-1] for rows in shards.timetable.part.sends)
    return found


if __name__ == "__main__":
    run_as_command(divided)
