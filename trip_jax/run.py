"""The command line: configuration -> simulation -> run directory.

python -m trip_jax.run [+experiment=NAME] [GROUP=CHOICE] [SETTING=VALUE] [-m]
python -m trip_jax.run --verify DIR
"""

import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from trip_jax.config import Config
from trip_jax.config_errors import no_choice, one_line, refuse_unknown
from trip_jax.errors import Diverged, Interrupted, InvalidSetting
from trip_jax.interruption import EXIT_CODE, Interruption
from trip_jax.schema import config_from, register

if TYPE_CHECKING:
    from trip_jax.records import Past

USER_ERRORS = (InvalidSetting, Diverged, HydraException, OmegaConfBaseException, OSError)

_HERE = Path(__file__).parent
# Inside an installed package, beside the package in a checkout.
CONF = _HERE / "conf" if (_HERE / "conf").is_dir() else _HERE.parent / "conf"


def run(config: Config, folder: Path, name: str = "run") -> dict[str, Any]:
    """Carry a configured run out and write its directory.

    With `config.resume` an unfinished run in the directory goes on, and a finished one is left.

    Args:
        name: what the run is called in its title.

    Returns:
        what summary.json says.

    Raises:
        InvalidSetting: a setting that cannot work, or a directory that holds a run already.
        Diverged: a model is no longer finite; the rounds before it are written.
        Interrupted: by SIGTERM or SIGINT; the rounds before are written.
    """
    from trip_jax.prepare import prepare
    from trip_jax.results import summarise
    from trip_jax.resume import anyone, locked, shared

    if _leads(config):
        with locked(folder):
            return _run_alone_or_first(config, folder, name)
    simulation, _ = prepare(config)
    with Interruption("the round") as interruption:  # the first process prints and writes
        past = shared(None, simulation)
        result = simulation.run(lambda _: anyone(interruption.asked), past=past)
    assert past  # which only a process that is alone may lack
    if int(past.state.round) + len(result.timings) < config.training.rounds:
        raise Interrupted("interrupted: the first process says what is kept.")
    return summarise(result)


def _run_alone_or_first(config: Config, folder: Path, name: str) -> dict[str, Any]:
    import jax

    from trip_jax.checkpoints import refuse_changes
    from trip_jax.prepare import describe, prepare
    from trip_jax.progress import Progress
    from trip_jax.provenance import json_hash, result_settings
    from trip_jax.results import (
        RoundLog,
        describe_scores,
        draw_figures,
        is_over,
        load_run,
        save_run,
    )
    from trip_jax.resume import RunCheckpoints, anyone, shared

    _refuse_over(folder, config)
    if is_over(folder):
        over = load_run(folder)
        then = config_from(over.summary["config"]).calibrated()
        refuse_changes(folder, result_settings(then), result_settings(config.calibrated()))
        if over.summary["status"] == "stopped":
            raise InvalidSetting(over.summary["message"])
        draw_figures(folder, over.data)
        print(f"the run is over already: results in {folder}")
        return over.summary
    began = time.perf_counter()
    simulation, federation = prepare(config)
    seconds_loading_data = time.perf_counter() - began
    rounds = config.training.rounds
    title = f"{name}: {describe(config)}"
    sizes = federation.data.sizes
    print(
        f"{title}; {sizes.min():,} to {sizes.max():,} examples a client, "
        f"{simulation.coalitions.max():,} coalitions a round",
        flush=True,
    )
    checkpoints = RunCheckpoints(folder, config, simulation)
    past = checkpoints.newest() if config.resume else None
    if past:
        print(f"going on after round {len(past.records)} in {folder}", flush=True)
    past = shared(past, simulation)
    done = len(past.records) if past else 0
    stopped: Diverged | Interrupted | None = None
    with (
        RoundLog(folder, past) as log,
        Progress(rounds, config.n_clients, done) as progress,
        Interruption("the round") as interruption,
    ):

        def on_round(past: "Past") -> bool:
            news = len(past.records) - 1, past.records[-1], past.timings[-1]
            log.write(*news)
            progress.report(*news)
            ends = anyone(interruption.asked) and len(past.records) < rounds
            if ends or (checkpoints.due(past) and len(past.records) < rounds):
                checkpoints.save(past)
            return ends

        def on_start(planned: int | None) -> None:
            if planned is not None:
                print(f"memory planned: {planned / 2**30:.2f} GiB", flush=True)

        try:
            result = simulation.run(on_round, on_start, past)
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
        summary = save_run(
            folder,
            result,
            federation,
            title=title,
            status=status[type(stopped)] if stopped else "finished",
            message=str(stopped or ""),
            config=asdict(config.calibrated()),
            settings_sha256=json_hash(result_settings(config)),
            seed=config.seed,
            resumed_after_round=done or None,
            seconds_loading_data=seconds_loading_data,
        )
    if stopped:
        raise stopped
    print(describe_scores(summary["scores"], summary["liars"]))
    print(f"results in {folder}")
    return summary


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _hydra_main(settings: DictConfig) -> float:
    hydra_config = HydraConfig.get()
    changed = any(not name.startswith("hydra.") for name in hydra_config.overrides.task)
    name = hydra_config.runtime.choices.get("experiment") or ("run" if changed else "quickstart")
    folder = Path(hydra_config.runtime.output_dir)
    try:
        refuse_unknown(settings)
        config = config_from(settings)
        folder = _folder(config, folder, hydra_config)
        _refuse_over(folder, config)
        if _leads(config):
            _save_settings(settings, hydra_config, folder / ".hydra")
        summary = run(config, folder, name)
    except Interrupted as end:  # of a sweep, too
        where = hydra_config.sweep.dir
        of_sweep = f" Give it hydra.sweep.dir={where}." if hydra_config.mode != RunMode.RUN else ""
        print(f"{end}{of_sweep}", file=sys.stderr)
        sys.exit(EXIT_CODE)
    except USER_ERRORS as error:
        if hydra_config.mode == RunMode.RUN:
            _fail(error)
        raise  # a sweep goes on with its other jobs before it fails
    return summary["final_accuracy"]["mean"]


def _folder(config: Config, folder: Path, hydra_config: Any) -> Path:
    """The directory of the run: the one to resume, or the one that Hydra made."""
    from trip_jax.resume import FOLDER

    if hydra_config.mode == RunMode.MULTIRUN:
        root = Path(hydra_config.sweep.dir).resolve()
        if not folder.resolve().is_relative_to(root):
            raise InvalidSetting(f"{folder} lies outside hydra.sweep.dir: mend hydra.sweep.subdir.")
        if config.resume not in (None, "auto"):
            raise InvalidSetting(
                "A sweep goes on with resume=auto and its hydra.sweep.dir, not with a directory."
            )
        return folder
    dated = not any(name.startswith("hydra.run.dir=") for name in hydra_config.overrides.hydra)
    if config.resume == "auto":
        chosen = _newest_alike(folder, config) if dated else None
    else:
        chosen = Path(config.resume) if config.resume else None
        if chosen and not any((chosen / name).exists() for name in (FOLDER, "summary.json")):
            raise InvalidSetting(f"resume={chosen}: there is no run that could go on.")
    if chosen is None:
        return folder
    with suppress(OSError):  # what Hydra made, unless it is in use
        folder.rmdir()
        if dated:
            folder.parent.rmdir()
            folder.parent.parent.rmdir()
    return chosen


def _newest_alike(folder: Path, config: Config) -> Path | None:
    """The newest unfinished run of the same settings among dated directories DATE/TIME."""
    from trip_jax.provenance import result_settings
    from trip_jax.results import is_over
    from trip_jax.resume import FOLDER

    for checkpoints in sorted(folder.parent.parent.glob(f"*/*/{FOLDER}"), reverse=True):
        run = checkpoints.parent
        try:
            other = config_from(OmegaConf.load(run / ".hydra" / "config.yaml"))
            if result_settings(other) == result_settings(config) and not is_over(run):
                return run
        except (OSError, ValueError, OmegaConfBaseException, YAMLError):
            continue  # of another version, damaged, or not a run of this command
    return None


def _leads(config: Config) -> bool:
    """Start JAX; whether this is the first of the processes that share the run."""
    import jax

    from trip_jax.devices import available, join

    join(config.distributed)
    available(config.devices)
    return jax.process_index() == 0


def _refuse_over(folder: Path, config: Config) -> None:
    from trip_jax.results import is_over
    from trip_jax.resume import FOLDER

    if config.resume:
        return
    if is_over(folder):
        raise InvalidSetting(f"{folder} holds a run already: choose another hydra.run.dir.")
    if (folder / FOLDER).exists():
        raise InvalidSetting(
            f"{folder} holds an unfinished run: go on with resume=auto, or choose another "
            "hydra.run.dir."
        )


def _save_settings(settings: DictConfig, hydra_config: Any, folder: Path) -> None:
    """What Hydra would write itself, but into a run that was there before, too."""
    if (folder / "overrides.yaml").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(settings, folder / "config.yaml")
    OmegaConf.save(OmegaConf.create({"hydra": hydra_config}), folder / "hydra.yaml")
    OmegaConf.save(hydra_config.overrides.task, folder / "overrides.yaml")


def main() -> None:
    """Run the command line; exit code 2 and one sentence for what a user can mend."""
    register()
    # Hydra would print these errors itself, over several lines, and exit with code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        if "--verify" in sys.argv:
            sys.exit(_verify([argument for argument in sys.argv[1:] if argument != "--verify"]))
        _hydra_main()
    except USER_ERRORS as error:
        _fail(error)
    except KeyboardInterrupt:
        print("interrupted: go on from the last checkpoint with resume=auto.", file=sys.stderr)
        sys.exit(130)
    except ValueError as error:
        if "Config group override must be" not in str(error):
            raise
        _fail(InvalidSetting(no_choice(sys.argv[1:], CONF)))


def _verify(folders: list[str]) -> int:
    """Say whether runs' numbers come out again; exit code 1 if not."""
    from trip_jax.verify import verify

    if not folders:
        raise InvalidSetting("--verify needs a run directory: python -m trip_jax.run --verify DIR.")
    verdicts = [verify(Path(folder)) for folder in folders]
    for folder, verdict in zip(folders, verdicts, strict=True):
        print(f"{folder}: {verdict}")
    return int(any(verdict.differences for verdict in verdicts))


def _fail(error: BaseException) -> NoReturn:
    print(f"error: {one_line(error, CONF)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
