"""The command line: configuration -> simulation -> run directory."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from trip_jax import __version__
from trip_jax.cli import verify
from trip_jax.cli.command import USER_ERRORS, command, refuse
from trip_jax.cli.effects import refuse_idle
from trip_jax.cli.folders import Folders, require_within
from trip_jax.cli.messages import one_line, refuse_no_choice, refuse_unknown
from trip_jax.cli.options import lazy_help, refuse_no_option
from trip_jax.cli.own_code import with_own_code
from trip_jax.cli.quotes import quoted
from trip_jax.config import Config
from trip_jax.runs.against_truth import TRUTH_FOLDERS
from trip_jax.runs.interruption import EXIT_CODE
from trip_jax.runs.launch import run
from trip_jax.runs.provenance import result_settings
from trip_jax.runs.reading import is_over
from trip_jax.runs.resume import FOLDER
from trip_jax.runs.schema import CONF, config_from, register
from trip_jax.runs.started import note_start, start_of
from trip_jax.runs.sweep import FAILED, FAILURE, read_job, write_table
from trip_jax.settings.errors import Interrupted, InvalidSetting
from trip_jax.simulation.observer import Observer
from trip_node.settings.lines import say

USAGE = """\
trip-jax run [+experiment=NAME] [GROUP=CHOICE ...] [SETTING=VALUE ...] [-m]
             (or python -m trip_jax.run): simulates a federation and writes
             scores, figures and what they come from to outputs/DATE/TIME.

trip-jax settings says what can be set; what is not set is the quickstart's.

  -m               a sweep: every combination of values, to multirun/DATE/TIME
  resume=auto      go on with the newest run of the same settings
  resume=DIR       go on with this one
  hydra.run.dir=DIR, hydra.sweep.dir=DIR    write there
  --verify DIR     do a run's last rounds come out again?
  --cfg job        print the settings instead of running; --hydra-help: more

Examples
  trip-jax run topology=star n_clients=12 training.rounds=20
  trip-jax run +experiment=ws100 model=mlp distribution=noisy_labels seed=3
  trip-jax run -m seed=0,1,2 topology=regular,star
  trip-jax run +experiment=ws100 model=mlp resume=auto
  trip-jax run --verify outputs/DATE/TIME
"""


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _hydra_main(settings: DictConfig) -> float:
    hydra_config = HydraConfig.get()
    changed = any(not name.startswith("hydra.") for name in hydra_config.overrides.task)
    name = hydra_config.runtime.choices.get("experiment") or ("run" if changed else "quickstart")
    folder = Path(hydra_config.runtime.output_dir)
    try:
        refuse_unknown(settings)
        config = config_from(settings)
        if not config.resume:  # an earlier version may have taken what is now refused as idle
            refuse_idle(config, hydra_config.overrides.task, hydra_config.mode != RunMode.RUN)
        folder = _folder(config, folder, hydra_config)
        begun = _NotesStart(settings, hydra_config, folder, config)
        summary = run(config, folder, name, begun)
    except Interrupted as end:  # of a sweep, too
        where = hydra_config.sweep.dir
        of_sweep = f" Give it hydra.sweep.dir={where}." if hydra_config.mode != RunMode.RUN else ""
        say(f"{end}{of_sweep}", sys.stderr)
        sys.exit(EXIT_CODE)
    except USER_ERRORS as error:
        if hydra_config.mode == RunMode.RUN:
            sys.exit(refuse(one_line(error)))
        if not _note_failure(error, settings, hydra_config):
            raise
        return float("nan")  # a sweep goes on with its other jobs; cli/sweep.py ends it
    finally:
        if hydra_config.mode == RunMode.MULTIRUN:
            write_table(Path(hydra_config.sweep.dir))
        else:
            Folders.give_up()
    return summary["final_accuracy"]["mean"]


class _NotesStart(Observer):
    """Writes the settings, and when the run began, to its directory."""

    def __init__(self, settings: DictConfig, hydra_config: Any, folder: Path, config: Config):
        self._given = settings, hydra_config, folder
        self._folder, self._config = folder, config

    def on_begun(self) -> None:
        _save_settings(*self._given)
        note_start(self._folder, self._config)


def _note_failure(error: BaseException, settings: DictConfig, hydra_config: Any) -> bool:
    """Write why a job failed to its directory; False if the directory is not the job's own."""
    folder = Path(hydra_config.runtime.output_dir)
    try:
        require_within(folder, Path(hydra_config.sweep.dir))
    except InvalidSetting:
        return False
    of_a_run = (folder / ".hydra" / "overrides.yaml").exists() and not (folder / FAILURE).exists()
    if not of_a_run:
        _save_settings(settings, hydra_config, folder)
        (folder / FAILURE).write_text(f"{one_line(error)}\n")
    return read_job(folder, folder.name).status in FAILED


def _folder(config: Config, folder: Path, hydra_config: Any) -> Path:
    """The directory of the run: the one to resume, or the one that Hydra made."""
    if hydra_config.mode == RunMode.MULTIRUN:
        require_within(folder, Path(hydra_config.sweep.dir))
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
        if chosen and not dated and chosen.resolve() != folder.resolve():
            raise InvalidSetting(f"resume={chosen} goes on in there: leave out hydra.run.dir.")
    return chosen or folder


def _newest_alike(folder: Path, config: Config) -> Path | None:
    """The run of the same settings that began last, among directories DATE/TIME, of those that are
    unfinished, or whose truth is."""
    alike = []
    for kept in (FOLDER, *TRUTH_FOLDERS):
        for found in folder.parent.parent.glob(f"*/*/{kept}"):
            with suppress(InvalidSetting):  # of another version, damaged, or no run of this command
                began, other = start_of(found.parent)
                unfinished = kept != FOLDER or not is_over(found.parent)
                if unfinished and result_settings(other) == result_settings(config):
                    alike.append((began, found.parent))
    return max(alike)[1] if alike else None


def _save_settings(settings: DictConfig, hydra_config: Any, folder: Path) -> None:
    """Write the folder .hydra, which Hydra itself would write before the run is accepted."""
    saved = folder / ".hydra"
    (folder / FAILURE).unlink(missing_ok=True)
    saved.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(settings, saved / "config.yaml")
    OmegaConf.save(OmegaConf.create({"hydra": hydra_config}), saved / "hydra.yaml")
    OmegaConf.save(hydra_config.overrides.task, saved / "overrides.yaml")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exit code 2 and one sentence for what a user can mend."""
    if code := _main(argv):
        sys.exit(code)


@command
def _main(argv: Sequence[str] | None) -> int:
    given = sys.argv[1:] if argv is None else argv
    sweep = bool({"-m", "--multirun"} & set(given))
    arguments = [quoted(argument, sweep) for argument in with_own_code(given)]
    arguments.sort(key=lambda one: one not in ("-m", "--multirun"))  # Hydra's parser wants it so
    sys.argv[1:] = arguments  # where Hydra reads them
    if "--verify" in arguments:
        return verify.main([argument for argument in arguments if argument != "--verify"])
    if {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    if "--version" in arguments:
        print(f"trip-jax {__version__}")
        return 0
    refuse_no_option(arguments)
    refuse_no_choice(arguments)
    register()
    # Hydra would print errors itself, over several lines, and exit with code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with lazy_help():
            _hydra_main()
    except KeyboardInterrupt:
        say("interrupted: go on from the last checkpoint with resume=auto.", sys.stderr)
        return 130
    return 0
