"""How near training and evaluation come to what a device could do, and what keeps them from it.

    python -m experiments.roofline [budget=480s] [clients=8,100] [works=evaluation,training]
        [precision=float32,tensorfloat32,bfloat16] [chunks=16,32,64,128,256,512] [repeats=3]
        [dry=auto|true|false] [out=DIR]

The paper's CNN on images of Fashion-MNIST's shape: one local epoch of all clients, and all
coalitions of a round on 500 images, by the programs of runs, in each form of the convolution and
with so many models in one `vmap`. Beside them PyTorch's vmap, and its loop with a CUDA graph a step
(needs the extra `bench`). Prints for each the rate; the share of the floor, which is the longer one
of FLOP over the device's fastest matrix products in that precision and bytes over its fastest
passes; and the idle share, which is that part of a call in which no kernel runs, by the device's
own profile. FLOP are counted in the lowered program, bytes and launches of kernels in the compiled
one. First the results of the device are compared with those kept of a CPU.

Every figure is written as CSV and Markdown when it is there. With a budget (480s, 30m) nothing is
begun that may not end within it, and the same command goes on where it stopped.

A dry run (dry=true, and by default where there is no GPU or TPU) times nothing. It counts FLOP,
matrix products and operations of the programs as they are lowered for CUDA and for TPUs, which need
not be there, and kernels and bytes of each program's largest chunk as it is compiled for this
device. FLOP and calls are the same in all precisions, so that it takes float32 alone unless told.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

import jax
from jax.errors import JaxRuntimeError

from experiments.benchmarks.ceiling import matmul_ceiling, pass_ceiling
from experiments.benchmarks.idle import idle_share
from experiments.benchmarks.program_counts import Counts
from experiments.benchmarks.roofline_cases import UNITS, Case, Sizes, cases, program_of
from experiments.benchmarks.roofline_check import require_kept_results
from experiments.benchmarks.roofline_table import Figures, Row
from experiments.benchmarks.timing import OURS, Work, spread, timed
from experiments.harness.command_line import Request, run_as_command
from experiments.harness.report import Report
from trip_jax.learning.devices import available
from trip_jax.learning.precision import PRECISIONS, require_precision
from trip_jax.runs.interruption import Deadline
from trip_jax.runs.lock import locked
from trip_jax.settings.errors import InvalidSetting

NAMES = ("budget", "clients", "works", "precision", "chunks", "repeats", "dry", "out")
CHUNKS = 16, 32, 64, 128, 256, 512
SIZES = Sizes()

PLATFORMS = "cuda", "tpu"
"""The platforms for which a dry run lowers programs."""

TOGETHER = 8
"""Programs that are compiled at the same time, before they are timed one after another."""

LONGEST = 60.0
"""Seconds that such a group is thought to take before one has been timed."""

TOO_LARGE = "more memory than there is"

PASSED = {"cpu": 2**24}
"""Numbers of an array that no cache holds; 2**28 elsewhere."""


@dataclass(frozen=True)
class Peaks:
    """What a device reaches where it does nothing else.

    Attributes:
        products: FLOP/s of large matrix products, by precision.
        passes: bytes a second of passes over its memory.
    """

    products: Mapping[str, float]
    passes: float

    @classmethod
    def of(cls, device: jax.Device, precisions: Sequence[str]) -> "Peaks":
        """The peaks of this device, measured now."""
        products = {name: matmul_ceiling(name, device) for name in precisions}
        return cls(products, pass_ceiling(device, PASSED.get(device.platform, 2**28)))

    def floor(self, counts: Counts, precision: str) -> tuple[float, str]:
        """The least seconds that a program can take, and what they pass with."""
        products = counts.flop / self.products[precision]
        passes = counts.bytes / self.passes
        return max((products, "products"), (passes, "bytes"))


def roofline(arguments: Sequence[str]) -> None:
    """Measure or count, print and write."""
    request = Request("roofline", arguments, NAMES)
    request.refuse_overrides()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs memory, too
    deadline = Deadline(request.seconds("budget", "480s") or 0)
    device, names = available()[0], tuple(PRECISIONS)
    (dry,) = request.among("dry", ("auto", "true", "false"), "auto")
    counts_only = dry == "true" or (dry == "auto" and device.platform == "cpu")
    float32 = counts_only or device.platform == "cpu"
    precisions = request.among("precision", names, *names[:1] if float32 else names)
    clients, works = request.numbers("clients", 8, 100), request.among("works", tuple(UNITS))
    chunks, repeats = request.numbers("chunks", *CHUNKS), request.number("repeats", 3, least=1)
    if min(*clients, 5) < 5 or min(chunks) < 1:
        raise InvalidSetting("clients must be at least 5, and chunks at least 1.")
    asked = [case for case in cases(clients, precisions, chunks) if case.work in works]
    written = Report.of(request, request.folder("outputs/benchmark"))
    with locked(written.stem.parent):
        figures = Figures(written, device.device_kind, counts_only)
        if counts_only:
            _count(asked, figures, deadline)
        else:
            for precision in precisions:
                require_precision(precision, device)
            print(require_kept_results())
            peaks = Peaks.of(device, precisions)
            taken = [case for case in asked if case.form == "shifts"]
            _time(taken, figures, deadline, peaks, repeats)
            _time_pytorch(taken, figures, deadline, peaks, repeats)
            _time(asked, figures, deadline, peaks, repeats)
    left = [case for case in asked if not figures.has(case.named)]
    print(figures.text)
    if left:
        print(f"{len(left)} of {len(asked)} programs are left: the same command goes on with them.")
    print(f"report in {written.stem.parent}")


def _count(asked: Sequence[Case], figures: Figures, deadline: Deadline) -> None:
    """The counts of each program; those of kernels of the first of each work, size and form."""
    longest = 0.0
    for case in asked:
        if figures.has(case.named):
            continue
        if deadline.left < longest:
            return
        began, program = time.monotonic(), program_of(case, SIZES)
        rows = [_row(case, f"lowered for {one}", program.counts(one)) for one in PLATFORMS]
        if case.largest and case.precision == "float32":
            rows.append(_row(case, "compiled", program.compiled()[1]))
        figures.keep(*rows)
        longest = max(longest, time.monotonic() - began)
        print(f"{case} is counted", flush=True)


def _time(
    asked: Sequence[Case], figures: Figures, deadline: Deadline, peaks: Peaks, repeats: int
) -> None:
    left = [case for case in asked if not figures.has(case.named)]
    longest = 0.0
    for start in range(0, len(left), TOGETHER):
        if deadline.left < (longest or LONGEST):
            return
        began, group = time.monotonic(), left[start : start + TOGETHER]
        with ThreadPoolExecutor(min(len(group), os.cpu_count() or 1)) as pool:
            compiled = list(pool.map(_compiled, group))
        for case, (amount, work, counts) in zip(group, compiled, strict=True):
            if work is not None:
                floor = peaks.floor(counts, case.precision)
                measured = partial(_measured, work, amount, floor, repeats)
                figures.keep(_row(case, "compiled", counts) | _unless_too_large(measured))
            else:
                figures.keep(_row(case, "compiled", counts) | {"note": TOO_LARGE})
        longest = max(longest, time.monotonic() - began)


def _compiled(case: Case) -> tuple[int, Work | None, Counts]:
    """Samples or models of a call, the call, and what it does; None where it does not fit."""
    program = program_of(case, SIZES)
    try:
        return program.amount, *program.compiled()
    except JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return program.amount, None, Counts()


def _measured(
    work: Work,
    amount: int,
    floor: tuple[float, str],
    repeats: int,
    wait: Callable[[], None] = lambda: None,
) -> Row:
    seconds = timed({"": work}, repeats, wait)[""]

    def done() -> None:
        jax.block_until_ready(work())
        wait()

    rates = spread([amount / one for one in seconds])
    share = floor[0] * rates["median"] / amount
    return rates | {"of_floor": share, "bound": floor[1], "idle": idle_share(done)}


def _unless_too_large(measured: Callable[[], Row]) -> Row:
    try:
        return measured()
    except JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"note": TOO_LARGE}


def _time_pytorch(
    asked: Sequence[Case], figures: Figures, deadline: Deadline, peaks: Peaks, repeats: int
) -> None:
    """PyTorch's ways in place of forms, in each size and precision; bytes of it are not counted."""
    try:
        from experiments.benchmarks.torch_federation import VMAP, wait
        from experiments.benchmarks.torch_graphs import computing, ways
    except InvalidSetting as error:
        print(f"Without PyTorch beside it: {error}")
        return
    longest = 0.0
    for case in (case for case in asked if case.largest):
        beside = case.named | {"form": "", "models_at_once": 0}
        if figures.has(beside | {"who": VMAP}):
            continue
        if deadline.left < (longest or LONGEST):
            return
        began, program = time.monotonic(), program_of(case, SIZES)
        counts = Counts(flop=program.counts(PLATFORMS[0]).flop)
        floor, rows = peaks.floor(counts, case.precision), []
        with computing(case.precision):
            for who, work in ways(case, SIZES).items():
                row = _row(case, "PyTorch", counts) | beside | {"who": who}
                rows.append(row | _measured(work, program.amount, floor, repeats, wait))
        figures.keep(*rows)
        longest = max(longest, time.monotonic() - began)


def _row(case: Case, program: str, counts: Counts) -> Row:
    return case.named | {"who": OURS, "program": program, "unit": UNITS[case.work]} | asdict(counts)


if __name__ == "__main__":
    run_as_command(roofline)
