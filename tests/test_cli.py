"""The command `trip-jax`: its help, its commands, completion, and what settings are said to be."""

import importlib
import json
import os
import re
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from hydra.core.global_hydra import GlobalHydra

import trip_jax as tj
from tests.conftest import Command, python
from trip_jax.cli import settings
from trip_jax.cli.main import COMMANDS, main
from trip_jax.cli.options import OPTIONS
from trip_jax.config import Config
from trip_jax.results.meaning import in_a_sentence
from trip_jax.results.scores import describe_scores, score_table, shares

GROUPS = sorted(path.name for path in settings.CONF.iterdir() if path.is_dir())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["run", "--help"], ["settings", "-h"]])
def test_help_fits_a_screen(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    argv = sys.argv[:]
    assert main(arguments) == 0
    sys.argv[:] = argv
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 23 and max(map(len, lines)) < 80
    if arguments != ["settings", "-h"]:
        examples = lines[lines.index("Examples") + 1 :]
        assert sum(line.startswith("  trip-jax ") for line in examples) == 5
        for word in ("resume=auto", "-m ", "settings", "verify"):
            assert word in "\n".join(lines)


def test_the_examples_of_help_are_settings_that_exist(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    main([])
    examples = re.findall(r"^  trip-jax run +((?:\S+=\S+ ?)+)$", capsys.readouterr().out, re.M)
    assert len(examples) == 2
    for example in examples:
        assert command(*example.split(), "--cfg", "job").code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_main(name: str) -> None:
    assert callable(importlib.import_module(COMMANDS[name]).main)


def test_a_command_gets_its_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["trip-jax"])
    assert main(["verify", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err
    assert main(["coordinate", str(tmp_path / "none.csv"), "--out", str(tmp_path)]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["seed=3", "runn"])
def test_an_unknown_command_is_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and repr(name) in err
    meant = "write trip-jax run seed=3." if "=" in name else "did you mean run?"
    assert err.endswith(f"{meant}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run --cfg", "--cfg/-c: expected one argument; trip-jax run --help says more."),
        ("run --info nope", "--info/-i: invalid choice: 'nope'"),
        ("run --nope", "There is no option --nope"),
        ("run seed=1 --experimental-rerun job.pickle", "--experimental-rerun unpickles a file"),
        ("run -sc install=nope", "--shell-completion must be one of install=bash, "),
        ("run -sc install=bash uninstall=bash", "not 'install=bash uninstall=bash'"),
        ("run -sc query=bash", "not 'query=bash'"),
        ("report", "the following arguments are required: DIR"),
        ("report . .", "unrecognized arguments: ."),
        ("compare nope nope", "There is no directory nope"),
        ("verify nope --rounds 3", "unrecognized arguments: --rounds 3"),
        ("settings ../conf", "not '../conf'"),
        ("settings model topology", "not 'model topology'"),
        ("coordinate reports.csv", "Give a table of reports and --out DIR"),
    ],
)
def test_what_a_command_cannot_take_is_one_sentence(
    arguments: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trip-jax"])
    with pytest.raises(SystemExit, match="2"):
        sys.exit(main(arguments.split()))  # from within, where Hydra is asked
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert not list(tmp_path.iterdir())


def test_options_are_those_that_hydra_lists(command: Command) -> None:
    listed = re.findall(r"^ *(-[\w,-]+) :", command("--hydra-help").out, re.M)
    assert [names.split(",") for names in listed] == [names.split() for names in OPTIONS]


def test_a_sweep_may_be_asked_for_anywhere(command: Command) -> None:
    outcome = command("topology=star", "-m", "seed=x")
    assert outcome.code == 2 and "seed must be an integer" in outcome.error


def test_the_version_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["run", "--version"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out == f"trip-jax {tj.__version__}\n"
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"].startswith("trip_jax.")


@pytest.mark.thorough
def test_the_package_runs_as_a_module(tmp_path: Path) -> None:
    outcome = python(tmp_path, "-m", "trip_jax", "galaxy")
    assert outcome.code == 2 and "'galaxy'" in outcome.error


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trip-jax ", " ".join(COMMANDS)),
        ("trip-jax re", " ".join(COMMANDS)),
        ("trip-jax report ou", None),  # by bash, which knows files
        ("trip-jax run topol", "topology. topology="),
        ("/bin/trip-jax run seed=1 topology=st", "topology=star"),
        ("trip-jax run training.ro", "training.rounds="),
    ],
)
def test_completion_knows_the_commands(
    line: str,
    offered: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    GlobalHydra.instance().clear()
    monkeypatch.setattr(sys, "argv", ["trip-jax"])
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert main(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out == (f"{offered}\n" if offered else "")


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of the shell, into a new program
@pytest.mark.thorough
def test_completion_in_bash(tmp_path: Path) -> None:
    """As the shell does it: Hydra's script, whose function calls the command."""
    pexpect = pytest.importorskip("pexpect")
    (tmp_path / "trip-jax").write_text(f'#!/bin/sh\nexec {sys.executable} -c "$CODE" "$@"\n')
    (tmp_path / "trip-jax").chmod(0o755)
    code = "import sys; sys.argv[0] = 'trip-jax'; from trip_jax.cli.main import main; main()"
    root = str(Path(__file__).parents[1])
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CODE": code, "PYTHONPATH": root}
    terminal = {"TERM": "dumb", "PS1": "$ "}
    shell = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile"],
        env=os.environ | environment | terminal,
        encoding="utf8",
        timeout=60,
    )
    shell.sendline('eval "$(trip-jax run -sc install=bash)"; echo rea""dy')
    shell.expect("ready")
    shell.send("trip-jax run topology=wat\t")
    shell.expect("topology=watts_strogatz")
    shell.close()


def test_every_setting_is_told_with_a_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, str] = {}
    for arguments in ([], *([group] for group in GROUPS)):
        GlobalHydra.instance().clear()
        assert settings.main(arguments) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 80
        named = re.findall(r"^  ([\w.]+)=\S+\n      ([^\[].*)\n(?:      .*\n)*?      \[", out, re.M)
        told |= dict(named)
    chosen_by_group = {f"{group}.kind" for group in GROUPS} | {"dataset.name"}
    everything = flatten_dict(asdict(Config()), sep=".").keys()
    assert set(told) == everything - chosen_by_group


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("topology", ["  star             client 0 is the hub", "regular*", "topology.degree=4\n"]),
        (
            "topology",
            ["[one of data_size, uniform, metropolis, graph]", "default 0.5 with"],
        ),
        (
            "training",
            [
                "training.learning_rate=0.05\n",
                "[without unit: a number above 0; default 0.01 with training=sgd",
            ],
        ),
        (
            "model",
            [
                "model.hidden=[64]\n",
                "[hidden units: a list of integers, at least 1; default [128] with",
            ],
        ),
        (
            "defence",
            ["[accuracy: a number, at least 0; read with defence.c1=true]", "default true with"],
        ),
        ("contribution", ["auto*            neighbourhoods of more", "one of shapley, banzhaf"]),
        ("experiment", ["+experiment=liars\n", "  Command:  python -m trip_jax.run +experiment"]),
    ],
)
def test_a_group_is_told(group: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    GlobalHydra.instance().clear()
    assert settings.main([group]) == 0
    out = capsys.readouterr().out
    assert [word for word in words if word not in out] == []


@pytest.mark.parametrize("arguments", [["galaxy"], ["model", "training"]])
def test_an_unknown_group_is_one_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert settings.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "topology, training, trust, truth, not" in err and " ".join(arguments) in err


def test_shares_are_of_all_scores() -> None:
    assert shares([1.0, 3.0]).tolist() == [25, 75]
    assert shares([2.0, -1.0]).tolist() == [200, -100]
    for nothing in ([1.0, -1.0], [0.1, 0.2, -0.3], [0.0]):
        assert np.isnan(shares(nothing)).all()


def test_scores_in_a_line() -> None:
    assert describe_scores([0.25, 0.75], [0]) == (
        "scores by client: 1 0.750 (75.0 %), 0 (liar) 0.250 (25.0 %)"
    )
    many = describe_scores(list(range(12)), [])
    assert many.startswith("scores by client: 11 11.000 (16.7 %), ")
    assert ", 7 7.000 (10.6 %), ... 4 4.000 " in many and many.endswith("0 0.000 (0.0 %)")
    assert describe_scores([0.0], []).endswith("0 0.000 (-)")


@pytest.mark.parametrize(
    ("utility", "normalization", "words"),
    [
        ("accuracy", "paper", "in m times test accuracy, m being"),
        ("loss", "efficient", "in decrease of test loss in nats."),
        ("probability", "paper", "m times probability of the true class, m being"),
    ],
)
def test_a_score_is_said_to_be_what_it_is(utility: str, normalization: str, words: str) -> None:
    assert words in in_a_sentence(utility, normalization)


@pytest.mark.parametrize("n", [3, 12])
def test_scores_in_a_table(n: int) -> None:
    import xarray

    level = ("client", np.linspace(0, 0.5, n), {"long_name": "sigma of pixel noise"})
    run = xarray.Dataset(
        {
            "score": ("client", np.arange(n) / 8),
            "liar": ("client", np.arange(n) == 1),
            "examples": ("client", np.full(n, 1200)),
            "level": level,
        },
        coords={"client": np.arange(n)},
    )
    header, *rows = score_table(run).splitlines()
    assert " ".join(header.split()) == "client score share examples sigma of pixel noise"
    assert len({len(row) for row in rows}) == 1
    assert rows[0].split() == [
        str(n - 1),
        f"{(n - 1) / 8:.4f}",
        *rows[0].split()[2:4],
        "1,200",
        "0.5",
    ]
    assert [row.split()[0] for row in rows if row.endswith("liar")] == ["1"]
    sampled = score_table(run.assign(score_error=0 * run.score + 0.0123)).splitlines()
    assert sampled[0].split()[:5] == ["client", "score", "share", "std.", "error"]
    assert sampled[1].split()[4] == "0.012"
    shown = " ".join(row.split()[0] for row in rows)
    assert shown == ("2 1 0" if n == 3 else "11 10 9 8 7 ... 4 3 2 1 0")


def write_job(folder: Path, *overrides: str, **summary: object) -> None:
    """What `load_sweep` reads of a job."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(json.dumps(overrides))
    if summary:
        (folder / "summary.json").write_text(json.dumps(summary))


def finished(*scores: float, status: str = "finished") -> dict[str, object]:
    final = {"mean": 0.5, "std": 0.1}
    return {"scores": scores, "liars": [1], "final_accuracy": final, "status": status}


def test_a_sweep_is_loaded_side_by_side(tmp_path: Path) -> None:
    write_job(tmp_path / "0", "seed=1", "topology=star", **finished(1.0, 3.0))
    write_job(tmp_path / "2", "seed=1", "topology=ring", "resume=auto")
    write_job(
        tmp_path / "10", "seed=1", "+n=5", "topology=ring", **finished(1, 2, 1, status="stopped")
    )
    sweep = tj.load_sweep(tmp_path)
    assert sweep.job.values.tolist() == [0, 2, 10]
    assert sweep.status.values.tolist() == ["finished", "unfinished", "stopped"]
    assert sweep.topology.values.tolist() == ["star", "ring", "ring"]
    assert set(sweep.coords) == {"job", "client", "status", "topology", "n"}
    nan = np.nan
    np.testing.assert_array_equal(sweep.score, [[1, 3, nan], [nan] * 3, [1, 2, 1]])
    np.testing.assert_array_equal(sweep.share, [[25, 75, nan], [nan] * 3, [25, 50, 25]])
    assert sweep.liar.sum("client").values.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(sweep.accuracy, [0.5, nan, 0.5])
    by_topology = sweep.score.groupby("topology").mean("job")
    assert all(values.attrs["long_name"] for values in sweep.variables.values())
    assert all(values.attrs["units"] for values in sweep.data_vars.values())
    np.testing.assert_array_equal(by_topology.sel(topology="star"), [1, 3, nan])
    assert sweep.score.attrs["units"] == "1"
    for job, method in (("0", "weights"), ("10", "gain")):
        told = {"contribution": {"utility": "loss", "method": method}}
        write_job(tmp_path / method / job, **finished(1.0, 2.0), config=told)
        assert tj.load_sweep(tmp_path / method).score.units == {"0": "1", "10": "nat"}[job]


def test_numbers_of_a_sweep_are_numbers(tmp_path: Path) -> None:
    for i, (seed, rate) in enumerate([(0, "1e-3"), (1, "0.5")]):
        write_job(tmp_path / str(i), f"seed={seed}", f"training.learning_rate={rate}")
    sweep = tj.load_sweep(tmp_path)
    assert sweep.seed.dtype.kind == "i" and sweep.seed.values.tolist() == [0, 1]
    assert sweep["training.learning_rate"].values.tolist() == [0.001, 0.5]


def test_what_is_no_sweep_is_not_loaded(tmp_path: Path) -> None:
    write_job(tmp_path / "run", "seed=1", **finished(1.0, 2.0))
    for folder in (tmp_path / "run", tmp_path / "run" / ".hydra"):
        with pytest.raises(tj.InvalidSetting, match="holds no sweep"):
            tj.load_sweep(folder)
    for load in (tj.load_sweep, tj.load_run):
        with pytest.raises(tj.InvalidSetting, match="There is no directory"):
            load(tmp_path / "nothing")
