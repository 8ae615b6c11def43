"""Result pages link to what is there, and result files are called as their commands call them."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from docs.result_figures import FIGURES, RUNS, figure_of
from experiments import (
    adapters,
    benchmark,
    broadcast,
    divided,
    estimators,
    exchange_rates,
    false_predictions,
    peers,
    responses,
    roofline,
    scaling,
    service_load,
    step,
)
from experiments.asynchrony import AsynchronyStudy
from experiments.borders import asked
from experiments.compression import CompressionStudy
from experiments.coverage import SETTINGS
from experiments.fragility import FragilityStudy
from experiments.harness import result_table
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
from trip_jax.results.figure_style import drawn_as
from trip_jax.settings.figures import Drawing

RESULTS = Path(__file__).parents[1] / "docs" / "results"
BEYOND: dict[str, Callable[[list[str]], CellStudy]] = {
    "asynchrony": AsynchronyStudy,
    "borders": asked,
    "compression": CompressionStudy,
    "false_predictions": false_predictions.asked,
    "fragility": FragilityStudy,
    "incentives": IncentiveStudy,
    "methods": MethodStudy,
    "participation": ParticipationStudy,
    "responses": responses.asked,
    "robust": RobustStudy,
    "stability": StabilityStudy,
}
OF_SPEED = {"benchmark": benchmark.SETTINGS, "scaling": scaling.SETTINGS, "peers": peers.SETTINGS}
AS_GIVEN = {
    "broadcast": broadcast.SETTINGS,
    "divided": divided.SETTINGS,
    "roofline": roofline.NAMES,
    "service_load": service_load.SETTINGS,
}
"""Settings of experiments whose commands repeat what was given and add nothing."""


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
        return Report.of(request, RESULTS)
    elif experiment == "step":
        request = Request(experiment, arguments, step.SETTINGS)
        request.one("dataset", "fashion_mnist")
        request.number("repeats", 5)
        return Report.of(request, RESULTS)
    elif experiment in AS_GIVEN:
        return Report.of(Request(experiment, arguments, AS_GIVEN[experiment]), RESULTS)
    elif experiment == "adapters":
        return Report.of(adapters.asked(arguments)[0], RESULTS)
    elif experiment == "exchange_rates":
        request = Request(experiment, arguments, exchange_rates.SETTINGS)
        exchange_rates.asked(request)
        return Report.of(request, RESULTS)
    elif experiment == "estimators":
        request = Request(experiment, arguments, estimators.SETTINGS)
        for name, default in (("players", 12), ("seeds", 20)):
            request.number(name, default)
        request.numbers("budgets", 128, 512)
        request.several("others", "shapiq")
        return Report.of(request, RESULTS)
    elif experiment == "coverage":
        request = Request(experiment, arguments, SETTINGS)
        request.one("scale", "cpu")
        return Report.of(request, RESULTS)
    else:
        own = ("method", "k", "draws", "relays", "distribution", "fraction", "amount")
        study = SmallWorldStudy(experiment, arguments, own, fixed={})
    (which,) = study.reports()
    return study.report(*which)


def test_each_run_is_of_a_command_that_writes_it() -> None:
    runs = result_table.runs()
    for command in runs.command:
        assert report_of(command).command == command
    assert runs.run.is_unique and runs.command.is_unique and (runs.machine != "").all()
    for figure in (RESULTS / "figures").iterdir():
        with Image.open(figure) as image:
            assert image.info["Description"] in set(runs.command), figure.name


def test_pages_link_to_what_is_there_and_show_every_figure() -> None:
    pages = {page: page.read_text() for page in RESULTS.glob("*.md")}
    for page, text in pages.items():
        links = re.findall(r"\]\(([^)#]+)", text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name
    shown = set(re.findall(r"\]\(figures/([^)]+)\)", "".join(pages.values())))
    assert shown == {path.name for path in (RESULTS / "figures").iterdir()}


def test_figures_are_drawn_from_the_table() -> None:
    for run in RUNS:
        with drawn_as(Drawing(titles=False)):
            inches = figure_of(run).get_size_inches()
        with Image.open(FIGURES / f"{run.partition('/')[0]}.png") as drawn:
            assert drawn.size == tuple((300 * inches).astype(int)), f"draw {run} again"


def test_figures_have_captions_that_begin_with_what_they_show() -> None:
    for page in RESULTS.glob("*.md"):
        text = page.read_text()
        captions = re.findall(
            r"^```\{figure-md\}\n!\[.+\]\(figures/\S+\.png\).*\n\n\*\*[A-Z]", text, re.MULTILINE
        )
        assert len(captions) == text.count("](figures/"), page.name


def test_a_page_opens_with_its_answer_in_one_sentence() -> None:
    for page in RESULTS.glob("*.md"):
        _, answer, *_ = page.read_text().split("\n\n")
        assert re.fullmatch(r"[A-Z]((?![.!?]\s)[^;:])+\.", answer), page.name
