"""The command line: configuration -> simulation -> run directory.

python -m trip_jax.run [+experiment=NAME] [GROUP=CHOICE] [SETTING=VALUE] [-m]
"""

import os
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trip_jax.config import Config, register
from trip_jax.config_errors import no_choice, one_line, refuse_unknown
from trip_jax.errors import Diverged, InvalidSetting

USER_ERRORS = (InvalidSetting, Diverged, HydraException, OmegaConfBaseException, OSError)

_HERE = Path(__file__).parent
# Inside an installed package, beside the package in a checkout.
CONF = _HERE / "conf" if (_HERE / "conf").is_dir() else _HERE.parent / "conf"


def run(config: Config, folder: Path, name: str = "run") -> dict[str, Any]:
    """Carry a configured run out and write its directory.

    Args:
        name: what the run is called in its title.

    Returns:
        what summary.json says.

    Raises:
        InvalidSetting: a setting that cannot work, or a directory that holds a run already.
        Diverged: a model is no longer finite; the rounds before it are written.
    """
    import jax

    from trip_jax.devices import join
    from trip_jax.prepare import describe, prepare
    from trip_jax.progress import Progress
    from trip_jax.results import RoundLog, describe_scores, save_run, summarise

    _refuse_finished(folder)
    join(config.distributed)
    began = time.perf_counter()
    simulation, federation = prepare(config)
    seconds_loading_data = time.perf_counter() - began
    rounds = config.training.rounds
    if jax.process_index():
        return summarise(simulation.run())  # the first process prints and writes
    title = f"{name}: {describe(config)}"
    sizes = federation.data.sizes
    print(
        f"{title}; {sizes.min():,} to {sizes.max():,} examples a client, "
        f"{simulation.coalitions.max():,} coalitions a round",
        flush=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    stopped = None
    with RoundLog(folder) as log, Progress(rounds, config.n_clients) as progress:

        def on_round(*news: Any) -> None:
            log.write(*news)
            progress.report(*news)

        def on_start(planned: int | None) -> None:
            if planned is not None:
                print(f"memory planned: {planned / 2**30:.2f} GiB", flush=True)

        try:
            result = simulation.run(on_round, on_start)
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
    summary = save_run(
        folder,
        result,
        federation,
        title=title,
        status="stopped" if stopped else "finished",
        message=str(stopped or ""),
        config=asdict(replace(config, defence=simulation.defence)),
        seconds_loading_data=seconds_loading_data,
    )
    print(describe_scores(summary["scores"], summary["liars"]))
    print(f"results in {folder}")
    if stopped:
        raise stopped
    return summary


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def _hydra_main(settings: DictConfig) -> float:
    hydra_config = HydraConfig.get()
    changed = any(not name.startswith("hydra.") for name in hydra_config.overrides.task)
    name = hydra_config.runtime.choices.get("experiment") or ("run" if changed else "quickstart")
    folder = Path(hydra_config.runtime.output_dir)
    try:
        refuse_unknown(settings)
        config = OmegaConf.to_object(settings)
        assert isinstance(config, Config)
        _refuse_finished(folder)
        if _leads(config):
            _save_settings(settings, hydra_config, folder / ".hydra")
        summary = run(config, folder, name)
    except USER_ERRORS as error:
        if hydra_config.mode == RunMode.RUN:
            _fail(error)
        raise  # a sweep goes on with its other jobs before it fails
    return summary["final_accuracy"]["mean"]


def _leads(config: Config) -> bool:
    """Start JAX; whether this is the first of the processes that share the run."""
    import jax

    from trip_jax.devices import available, join

    join(config.distributed)
    available(config.devices)
    return jax.process_index() == 0


def _refuse_finished(folder: Path) -> None:
    if (folder / "summary.json").exists():
        raise InvalidSetting(f"{folder} holds a run already: choose another hydra.run.dir.")


def _save_settings(settings: DictConfig, hydra_config: Any, folder: Path) -> None:
    """What Hydra would write itself, but into a finished run as well (hydra.output_subdir)."""
    folder.mkdir(exist_ok=True)
    OmegaConf.save(settings, folder / "config.yaml")
    OmegaConf.save(OmegaConf.create({"hydra": hydra_config}), folder / "hydra.yaml")
    OmegaConf.save(hydra_config.overrides.task, folder / "overrides.yaml")


def main() -> None:
    """Run the command line; exit code 2 and one sentence for what a user can mend."""
    register()
    # Hydra would print these errors itself, over several lines, and exit with code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _hydra_main()
    except USER_ERRORS as error:
        _fail(error)
    except KeyboardInterrupt:
        print("interrupted: rounds.csv keeps the finished rounds; start again.", file=sys.stderr)
        sys.exit(130)
    except ValueError as error:
        if "Config group override must be" not in str(error):
            raise
        _fail(InvalidSetting(no_choice(sys.argv[1:], CONF)))


def _fail(error: BaseException) -> NoReturn:
    print(f"error: {one_line(error, CONF)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
