"""Signals end a process in bounded time, whatever it is busy with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trip_jax.runs import interruption
from trip_jax.runs.interruption import EXIT_CODE, Deadline, Interruption
from trip_jax.settings.errors import Interrupted

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")

HANGS = """
import sys
import jax
from trip_jax.runs import interruption
interruption.PATIENCE = float(sys.argv[1])
hang = jax.jit(lambda x: jax.lax.while_loop(lambda x: x >= 0, lambda x: (x + 1) % 7, x))
with interruption.Interruption("the round"):
    print("hangs", flush=True)
    hang(1.0).block_until_ready()
"""
FINISHING = "interrupted: finishing the round ...\n"


def test_a_computation_that_hangs_is_ended(thorough: bool) -> None:
    """After a while at the first signal, at once at the second, whichever they are."""
    cases = [
        ("1", [signal.SIGTERM], EXIT_CODE, "the round did not end within 1 s"),
        ("60", [signal.SIGTERM, signal.SIGINT], 128 + signal.SIGINT, "ended at once"),
        ("60", [signal.SIGINT, signal.SIGTERM], 128 + signal.SIGTERM, "ended at once"),
    ]
    cases = cases if thorough else cases[:2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HANGS, patience],
            # JAX warns where another of the processes is still writing the program that it reads.
            env=os.environ | {"PYTHONPATH": str(Path.cwd()), "JAX_ENABLE_COMPILATION_CACHE": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for patience, *_ in cases
    ]
    for process, (_, signals, code, how) in zip(processes, cases, strict=True):
        with process:
            assert process.stdout and process.stdout.readline() == "hangs\n"
            began = time.monotonic()
            for number in signals:
                time.sleep(0.5)  # two at once would be one
                process.send_signal(number)
            _, said = process.communicate(timeout=50)
            assert process.returncode == code
            assert said == f"{FINISHING}interrupted: {how}; go on from what was kept last.\n"
            assert time.monotonic() - began < 30


def test_the_first_signal_is_noted_and_all_is_as_before(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in interruption.SIGNALS]
    with Interruption("this") as wish:
        assert not wish.asked
        os.kill(os.getpid(), signal.SIGINT)
        assert wish.asked
    assert capfd.readouterr().err == "interrupted: finishing this ...\n"
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    ended: list[tuple[str, int]] = []
    monkeypatch.setattr(interruption, "_end", lambda *how: ended.append(how))
    with Interruption("this"):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [("ended at once", 128 + signal.SIGTERM)]


def test_work_ends_before_a_deadline_that_its_next_step_would_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(interruption.time, "monotonic", lambda: clock[0])

    def steps_of(*seconds: float, budget: float) -> int:
        with Deadline(budget) as deadline, Interruption("this") as wish:
            for done, took in enumerate(seconds, 1):
                clock[0] += took
                if wish.asked:
                    assert deadline.reached and wish.asked  # and so it stays
                    with pytest.raises(Interrupted):
                        wish.heed()
                    return done
                wish.heed()  # the same step, looked at twice
            assert not deadline.reached
            return len(seconds)

    assert steps_of(10, 10, 10, 10, 10, budget=35) == 3  # 5 seconds are left
    assert steps_of(10, 10, 10, 10, 10, budget=100) == 5
    assert steps_of(40, 10, 10, 10, 10, budget=95) == 5  # the first was longer: it compiled
    with Interruption("this") as wish:  # without a deadline
        clock[0] += 1e6
        assert not wish.asked
