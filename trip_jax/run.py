"""The command line: configuration -> simulation -> run directory.

python -m trip_jax.run [+experiment=NAME] [GROUP=CHOICE] [SETTING=VALUE] [-m]
"""

import difflib
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trip_jax.config import Config, register
from trip_jax.errors import Diverged, InvalidSetting

if TYPE_CHECKING:
    from trip_jax.data.partition import Federation
    from trip_jax.simulation import Result

USER_ERRORS = (InvalidSetting, Diverged, HydraException, OmegaConfBaseException, OSError)

_CHECKOUT = Path(__file__).parent.parent / "conf"
_CONF = str(_CHECKOUT) if (_CHECKOUT / "config.yaml").is_file() else "pkg://trip_jax.conf"


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
    from trip_jax.prepare import describe, prepare
    from trip_jax.progress import Progress
    from trip_jax.results import RoundLog

    if (folder / "summary.json").exists():
        raise InvalidSetting(
            f"{folder} holds a finished run already: choose another hydra.run.dir."
        )
    began = time.perf_counter()
    simulation, federation = prepare(config)
    seconds = {"data": time.perf_counter() - began}
    rounds = config.training.rounds
    title = f"{name}: {describe(config)}"
    print(f"{title}; {int(simulation.rows.n_rows.max()):,} coalitions a round", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    stopped = None
    with RoundLog(folder) as log, Progress(rounds, config.n_clients) as progress:

        def on_round(*news: Any) -> None:
            log.write(*news)
            progress.report(*news)

        try:
            result = simulation.run(on_round)
        except Diverged as error:
            if error.result is None:
                raise
            stopped, result = error, error.result
    summary = _write(folder, config, title, result, federation, seconds, stopped)
    if stopped:
        raise stopped
    return summary


def _write(
    folder: Path,
    config: Config,
    title: str,
    result: "Result",
    federation: "Federation",
    seconds: dict[str, float],
    stopped: Diverged | None,
) -> dict[str, Any]:
    from trip_jax.figures import draw_all
    from trip_jax.results import describe_scores, summarise, to_dataset, write_atomically

    data = to_dataset(
        result,
        federation,
        title=title,
        utility=config.contribution.utility,
        normalization=config.contribution.normalization,
    )
    data.to_netcdf(folder / "results.nc", engine="h5netcdf")
    began = time.perf_counter()
    draw_all(data, folder / "figures")
    seconds["figures"] = time.perf_counter() - began
    summary = {
        "title": title,
        "status": "stopped" if stopped else "finished",
        "message": str(stopped) if stopped else "",
        "config": asdict(config),
        **summarise(result, seconds=seconds),
    }
    write_atomically(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
    print(describe_scores(summary["scores"], summary["liars"]))
    print(f"results in {folder}")
    return summary


@hydra.main(version_base="1.3", config_path=_CONF, config_name="config")
def _hydra_main(settings: DictConfig) -> float:
    hydra_config = HydraConfig.get()
    name = hydra_config.runtime.choices.get("experiment") or "quickstart"
    try:
        config = OmegaConf.to_object(settings)
        assert isinstance(config, Config)
        summary = run(config, Path(hydra_config.runtime.output_dir), name)
    except USER_ERRORS as error:
        if hydra_config.mode == RunMode.RUN:
            _fail(error)
        raise  # a sweep goes on with its other jobs before it fails
    return summary["final_accuracy"]["mean"]


def main() -> None:
    """Run the command line; exit code 2 and one sentence for what a user can mend."""
    register()
    # Hydra would print these errors itself, over several lines, and exit with code 1.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        _hydra_main()
    except USER_ERRORS as error:
        _fail(error)


def _fail(error: BaseException) -> NoReturn:
    print(f"error: {_one_line(error)}", file=sys.stderr)
    sys.exit(2)


def _one_line(error: BaseException) -> str:
    """The error as one sentence; Hydra's run over several lines and leave the cause to another."""
    if unknown := re.match(r"Could not override '(.+?)'\.", str(error)):
        names = list(_settings("", asdict(Config())))
        close = difflib.get_close_matches(unknown[1], names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}."
        return f"There is no setting {unknown[1]}: {hint}"
    text = re.split(r"\n\s*(?:Config search path|See https|full_key)", str(error))[0]
    if isinstance(error, HydraException) and error.__cause__:
        text += f": {str(error.__cause__).splitlines()[0]}"
    return " ".join(text.split())


def _settings(prefix: str, settings: dict[str, Any]) -> Iterator[str]:
    """The dotted names of all settings."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _settings(f"{prefix}{name}.", value)
        else:
            yield prefix + name


if __name__ == "__main__":
    main()
