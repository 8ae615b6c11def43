"""A configured run carried out: from its configuration to its directory."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
from flax.traverse_util import flatten_dict

from trip_jax.config import Config
from trip_jax.data.partition import Partition
from trip_jax.learning.devices import available
from trip_jax.learning.distributed import join
from trip_jax.learning.memory import PlannedMemory
from trip_jax.protocol.methods.whole_run import sees_models
from trip_jax.results.meaning import in_a_sentence
from trip_jax.results.scores import describe_scores, score_table
from trip_jax.runs.against_truth import hold_against_truth
from trip_jax.runs.agreement import in_words
from trip_jax.runs.checkpoints import refuse_changes, remove_checkpoints
from trip_jax.runs.directory import REPORT, draw_figures, summarise, write_report, write_run
from trip_jax.runs.free_directory import given_up, refuse_taken
from trip_jax.runs.held_truth import in_words as truth_in_words
from trip_jax.runs.interruption import Interruption
from trip_jax.runs.lock import locked
from trip_jax.runs.prepare import describe, prepare
from trip_jax.runs.provenance import files_hash, json_hash, result_settings
from trip_jax.runs.reading import is_over, load_run
from trip_jax.runs.resume import FILES, FOLDER, ROUNDS, UPDATES, RunCheckpoints, anyone, shared
from trip_jax.runs.round_log import RoundLog, numbers_of
from trip_jax.runs.schema import config_of_run
from trip_jax.settings import require
from trip_jax.settings.declared import instance, path_of
from trip_jax.settings.errors import Diverged, Interrupted, InvalidSetting
from trip_jax.settings.own_files import remove_files
from trip_jax.settings.plurals import counted
from trip_jax.simulation import Simulation
from trip_jax.simulation.history import Snapshot
from trip_jax.simulation.observer import Observer, as_observer
from trip_jax.simulation.progress import RoundProgress
from trip_jax.tracking import TRACKERS, Tracked, Tracker
from trip_jax.truth.settings import Executable
from trip_node.settings.lines import say


def run(
    config: Config,
    folder: str | os.PathLike[str],
    name: str = "run",
    observer: Observer | Callable[..., Any] | None = None,
    *,
    on_begun: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Carry a configured run out and write its directory.

    With `config.resume` an unfinished run in the directory goes on, and a finished one is left.

    Args:
        name: what the run is called in its title.
        observer: hears of the run while it goes on, in the first of several processes; it may end
            the run after a round, which is then interrupted. A function stands for its `on_begun`,
            which is deprecated.
        on_begun: deprecated; a method of an observer in place of a function.

    Returns:
        what summary.json says.

    Raises:
        InvalidSetting: a setting that cannot work, or a directory that holds a run already.
        Diverged: a model is no longer finite; the rounds before it are written.
        Interrupted: by SIGTERM or SIGINT; the rounds before are written.
    """
    instance("config", config, Config, "give tj.Config(...)")
    folder = path_of("folder", folder)
    hears = as_observer(observer, "on_begun", on_begun=on_begun)
    require(
        config.truth.kind == "none" or config.distributed.coordinator is None,
        f"truth={config.truth.kind} is executed by one process: leave out distributed.coordinator.",
    )
    join(config.distributed)
    available(config.devices)
    if jax.process_index() != 0:
        return _run_beside(config)
    tracker = TRACKERS[config.track](folder)
    with locked(folder):
        refuse_taken(folder, config)
        over = _over(config, folder)
        if over is not None and (config.truth.kind == "none" or "truth" in over):
            return over
        prepared = _Prepared.of(config)
        if over is None:
            with given_up(folder):
                over = _run_alone_or_first(config, prepared, folder, name, tracker, hears)
        if prepared.truth_of is not None:
            over = hold_against_truth(folder, config, prepared.simulation, prepared.truth_of)
            say(truth_in_words(over))
        return over


class _Beside(Observer):
    """Ends a run, and hands over its state to be saved, whenever the first process does."""

    def __init__(self, simulation: Simulation, interruption: Interruption):
        self._simulation, self._interruption = simulation, interruption

    def on_round(self, past: Snapshot) -> bool:
        ends, due = anyone(self._interruption.asked, False)
        ends &= int(past.state.round) < self._simulation.training.rounds
        if ends or due:
            self._simulation.placement.collected(past.state)  # for the first, which saves it
        return ends


def _run_beside(config: Config) -> dict[str, Any]:
    """The work of a process that is not the first."""
    simulation, _ = prepare(config)
    with Interruption("the round") as interruption:
        past = shared(None, simulation)
        result = simulation.run(_Beside(simulation, interruption), past=past, progress=False)
    done = int(past.state.round) if past else 0
    if done + len(result.timings) < config.training.rounds:
        raise Interrupted("interrupted: the first process says what is kept.")
    return summarise(result)


class _Reporting(Observer):
    """Writes, prints, tracks and saves what a run does, and ends it where it is interrupted.

    Args:
        observer: hears of all of it, too.
    """

    def __init__(
        self,
        simulation: Simulation,
        folder: Path,
        observer: Observer,
        checkpoints: RunCheckpoints,
        log: RoundLog,
        progress: RoundProgress,
        tracked: Tracked,
        interruption: Interruption,
    ):
        self._simulation, self._folder, self._observer = simulation, folder, observer
        self._checkpoints, self._log, self._progress = checkpoints, log, progress
        self._tracked, self._interruption = tracked, interruption
        self.past: Snapshot | None = None  # up to the last round that this process has run

    def on_start(self, planned: PlannedMemory | None) -> None:
        if planned:
            say(f"memory planned: {planned}")
        method = f"contribution.method={self._simulation.contribution.method}"
        if sees_models(self._simulation.rules.contribute):
            say(f"{method}: WHOEVER COMPUTES CONTRIBUTIONS SEES ALL MODELS OF ALL ROUNDS")
        elif self._simulation.keeps_updates:
            seen = "what all models say of the shared test set"
            say(f"{method}: whoever computes contributions sees {seen}")
        self._progress.begin()
        self._observer.on_start(planned)

    def on_round(self, past: Snapshot) -> bool:
        self.past = past
        done, rounds = len(past.records), self._simulation.training.rounds
        news = done - 1, past.records[-1], past.timings[-1]
        self._log.write(*news)
        self._progress.report(*news)
        self._tracked.round(done, numbers_of(*news[1:]))
        more = done < rounds or self._simulation.keeps_updates
        asked = bool(self._observer.on_round(past)) or self._interruption.asked
        ends, due = anyone(asked, self._checkpoints.due(past) and more)
        ends &= done < rounds
        if ends or due:
            self._checkpoints.save(past)
        return ends

    def on_part(self, share: float) -> None:
        self._progress.conclude(share)
        self._observer.on_part(share)
        if self._interruption.asked:
            assert self.past
            self._checkpoints.save(self.past)
            raise Interrupted(
                f"interrupted when {share:.0%} of contributions were told, which is kept in "
                f"{self._folder}: the same command with resume=auto goes on."
            )


def _over(config: Config, folder: Path) -> dict[str, Any] | None:
    """The summary of a run that is over, after missing figures and report are made; else None."""
    if not is_over(folder):
        return None
    over = load_run(folder)
    then = config_of_run(folder, over.summary).calibrated()
    refuse_changes(folder, result_settings(then), result_settings(config.calibrated()))
    was = over.summary.get("files_sha256")
    was = was if isinstance(was, dict) else {}
    for setting, found in files_hash(config).items():
        require(
            found == was.get(setting, found),
            f"{folder} holds a run with another file in {setting.partition('=')[0]}, which has "
            "changed since: choose another directory, or give the file of then.",
        )
    if over.summary["status"] == "stopped":
        raise InvalidSetting(over.summary["message"])
    _clear(folder)
    draw_figures(folder, over.data, config.drawing)
    if not (folder / REPORT).exists():
        write_report(folder, over.data, over.summary)
    say(f"the run is over already: results in {folder}")
    return over.summary


def _clear(folder: Path) -> None:
    """Remove what an unfinished run alone needs: checkpoints, too, that are nothing without it."""
    if (folder / ROUNDS).exists():
        remove_checkpoints(folder / FOLDER)
    for name, files in FILES.items():
        remove_files(folder / name, files)


@dataclass(frozen=True)
class _Prepared:
    """What a run needs before its first round."""

    simulation: Simulation
    federation: Partition
    truth_of: Executable | None
    seconds: float  # it took

    @classmethod
    def of(cls, config: Config) -> "_Prepared":
        began = time.perf_counter()
        simulation, federation = prepare(config)
        truth_of = config.truth.of(simulation)
        return cls(simulation, federation, truth_of, time.perf_counter() - began)


def _run_alone_or_first(
    config: Config,
    prepared: _Prepared,
    folder: Path,
    name: str,
    tracker: Tracker,
    observer: Observer,
) -> dict[str, Any]:
    simulation, federation = prepared.simulation, prepared.federation
    rounds = config.training.rounds
    title = f"{name}: {describe(config)}, seed {config.seed}"
    least, most = int(federation.data.sizes.min()), int(federation.data.sizes.max())
    examples = f"{least:,} to " * (least < most) + counted(most, "example")
    coalitions = counted(int(simulation.coalitions.max()), "coalition")
    graphs = "".join(f"; {file}" for file in simulation.topology.files)
    say(f"{title}; {examples} a client, {coalitions} a round{graphs}")
    checkpoints = RunCheckpoints(folder, config, simulation)
    past = checkpoints.newest() if config.resume else None
    if past:
        say(f"going on after round {len(past.records)} in {folder}")
    else:
        observer.on_begun()
    past = shared(past, simulation)
    done = len(past.records) if past else 0
    stopped: Diverged | Interrupted | None = None
    with (
        Tracked(tracker, config.track) as tracked,
        RoundLog(folder, past, simulation.topology.wave) as log,
        RoundProgress(
            rounds, config.n_clients, done, utility=config.contribution.utility
        ) as progress,
        Interruption("the round") as interruption,
    ):
        reporting = _Reporting(
            simulation, folder, observer, checkpoints, log, progress, tracked, interruption
        )
        reporting.past = past
        tracked.start(title, flatten_dict(asdict(config.calibrated()), sep="."), done)
        try:
            updates, records = folder / UPDATES, folder / ROUNDS
            result = simulation.run(
                reporting, progress=False, past=past, updates=updates, rounds=records
            )
        except Diverged as error:
            if error.result is None:
                raise
            stopped, result = error, error.result
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise InvalidSetting(
                "Memory is not enough: lower n_clients, contribution.coalition_batch or "
                "training.client_batch."
            ) from error
        finished = len(result.timings)
        if not stopped and finished < rounds:
            stopped = Interrupted(
                f"interrupted after round {finished} of {rounds}, which is kept in {folder}: the "
                "same command with resume=auto goes on."
            )
        status = {Diverged: "stopped", Interrupted: "interrupted"}
        tracked.summary = summary = write_run(
            folder,
            result,
            federation,
            title=title,
            settings=result_settings(config.calibrated()),
            drawing=config.drawing,
            status=status[type(stopped)] if stopped else "finished",
            message=str(stopped or ""),
            config=asdict(config.calibrated()),
            settings_sha256=json_hash(result_settings(config)),
            **({"files_sha256": files} if (files := files_hash(config)) else {}),
            seed=config.seed,
            resumed_after_round=done or None,
            seconds_loading_data=prepared.seconds,
        )
    if not isinstance(stopped, Interrupted):
        _clear(folder)
    if stopped:
        raise stopped
    _say_results(folder, config, summary)
    return summary


def _say_results(folder: Path, config: Config, summary: dict[str, Any]) -> None:
    """Print the results, at more length on a terminal."""
    contribution = config.contribution
    what = in_a_sentence(contribution.utility, contribution.scaling, contribution.method)
    broadcast = in_words(summary["broadcast"]) + "\n" if "broadcast" in summary else ""
    if not sys.stdout.isatty():
        print(what)
        print(describe_scores(summary["scores"], summary["liars"], summary.get("names")))
        print(f"{broadcast}results in {folder}")
        return
    say(f"\n{what}\n")
    print(f"{score_table(load_run(folder).data)}\n")
    say(f"{broadcast}results in {folder}")
    if (report := folder / "report.html").exists():
        say(f"to explore them, open {report}")
    print(f"beside another run: trip-jax compare {folder} DIR")
