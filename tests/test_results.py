"""Result pages link to what is there, and result files are called as their commands call them."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pandas
from PIL import Image

from experiments import (
    adapters,
    benchmark,
    exchange_rates,
    false_predictions,
    peers,
    responses,
    roofline,
    scaling,
    step,
)
from experiments.asynchrony import AsynchronyStudy
from experiments.borders import asked
from experiments.broadcast import SETTINGS as OF_BROADCAST
from experiments.compression import CompressionStudy
from experiments.coverage import SETTINGS
from experiments.harness.command_line import Request
from experiments.harness.report import Report
from experiments.incentives import IncentiveStudy
from experiments.methods import MethodStudy
from experiments.paper.cells import CellStudy
from experiments.paper.paper_values import DISTRIBUTIONS, TOPOLOGIES
from experiments.paper.small_world import SmallWorldStudy
from experiments.participation import ParticipationStudy
from experiments.robust import RobustStudy
from experiments.stability import StabilityStudy
from experiments.topologies import BEYOND_THE_PAPER

RESULTS = Path(__file__).parents[1] / "docs" / "results"
FILES = RESULTS / "files"
BEYOND: dict[str, Callable[[list[str]], CellStudy]] = {
    "asynchrony": AsynchronyStudy,
    "borders": asked,
    "compression": CompressionStudy,
    "false_predictions": false_predictions.asked,
    "incentives": IncentiveStudy,
    "methods": MethodStudy,
    "participation": ParticipationStudy,
    "responses": responses.asked,
    "robust": RobustStudy,
    "stability": StabilityStudy,
}
OF_SPEED = {"benchmark": benchmark.SETTINGS, "scaling": scaling.SETTINGS, "peers": peers.SETTINGS}
TABLES = sorted(set(FILES.glob("*.md")) - {FILES / "index.md"})


def report_of(command: str) -> Report:
    """What the experiment of a command writes."""
    _, _, module, *arguments = shlex.split(command)
    experiment = module.removeprefix("experiments.")
    study: CellStudy | SmallWorldStudy
    if experiment == "vs_shapley":
        study = CellStudy(experiment, arguments, distributions=DISTRIBUTIONS)
    elif experiment == "topologies":
        columns = (*TOPOLOGIES, *BEYOND_THE_PAPER)
        study = CellStudy(experiment, arguments, topologies=columns)
    elif experiment in BEYOND:
        study = BEYOND[experiment](arguments)
    elif experiment in OF_SPEED:
        request = Request(experiment, arguments, OF_SPEED[experiment])
        for name, default in (("dataset", "fashion_mnist"), ("model", "cnn")):
            request.one(name, default)
        if experiment == "peers":
            request.number("examples", 64)
        else:
            request.number("repeats", 3)
            request.number("examples", 32)
            request.numbers("clients", 8, 100, 1000)
        return Report.of(request, FILES)
    elif experiment == "step":
        request = Request(experiment, arguments, step.SETTINGS)
        request.one("dataset", "fashion_mnist")
        request.number("repeats", 5)
        return Report.of(request, FILES)
    elif experiment == "roofline":
        return Report.of(Request(experiment, arguments, roofline.NAMES), FILES)
    elif experiment == "adapters":
        return Report.of(adapters.asked(arguments)[0], FILES)
    elif experiment == "broadcast":
        return Report.of(Request(experiment, arguments, OF_BROADCAST), FILES)
    elif experiment == "exchange_rates":
        request = Request(experiment, arguments, exchange_rates.SETTINGS)
        exchange_rates.asked(request)
        return Report.of(request, FILES)
    elif experiment == "coverage":
        request = Request(experiment, arguments, SETTINGS)
        request.one("scale", "cpu")
        return Report.of(request, FILES)
    else:
        own = ("method", "k", "draws", "relays", "distribution", "fraction", "amount")
        study = SmallWorldStudy(experiment, arguments, own, fixed={})
    (which,) = study.reports()
    return study.report(*which)


def test_a_file_is_called_as_its_command_calls_it() -> None:
    for table in TABLES:
        (command,) = re.findall(r"^Command: `(.*)`$", table.read_text(), re.MULTILINE)
        report = report_of(command)
        assert (report.stem.name, report.command) == (table.stem, command)
        rows = table.with_suffix(".csv")
        if rows.exists():
            assert pandas.read_csv(rows).command.dropna().tolist() == [command]
        figures = (FILES / f"{table.stem}{ending}.png" for ending in ("", "_scatter", "_sweeps"))
        for figure in filter(Path.exists, figures):
            with Image.open(figure) as image:
                assert image.info["Description"] == command


def test_pages_link_to_what_is_there_and_the_index_to_every_file() -> None:
    for page in (*RESULTS.glob("*.md"), FILES / "index.md"):
        links = re.findall(r"\]\(([^)#]+)", page.read_text())
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name
    names = {path.name for path in FILES.iterdir()} - {"index.md"}
    assert names == {link for link in links if "/" not in link}
    assert max(map(len, names)) <= 40


def test_a_page_opens_with_its_answer_in_one_sentence() -> None:
    for page in RESULTS.glob("*.md"):
        _, answer, *_ = page.read_text().split("\n\n")
        assert re.fullmatch(r"[A-Z]((?![.!?]\s)[^;:])+\.", answer), page.name
