"""Table II: TRIP-Shapley against the Shapley value on different graphs.

    python -m experiments.topologies [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [topology=regular,star,line,directed,time_varying] [distribution=iid] [seed=0,1,2]
        [normalization=paper] [utility=accuracy] [borders=2] [samples=512]
        [corrected=predictions] [out=DIR] [SETTING=VALUE ...]

Shares the cells of experiments.vs_shapley, which explains the options, and has the same yardsticks.
`directed` is the regular graph with one direction of every edge, `time_varying` a ring whose
clients change places in every round; neither is in the paper. Any other choice of the group
topology is possible.
"""

from collections.abc import Sequence

from experiments.harness.command_line import run_as_command
from experiments.paper.cells import CellStudy
from experiments.paper.paper_values import TABLE_2, TOPOLOGIES
from experiments.paper.tables import Table
from trip_jax.settings.errors import InvalidSetting

BEYOND_THE_PAPER = {
    "directed": ["topology=regular", "topology.directed=true"],
    "time_varying": ["topology=ring", "topology.redraw_every=1"],
}


def topologies(arguments: Sequence[str]) -> None:
    """Fill Table II as far as it was asked for."""
    study = CellStudy("topologies", arguments, topologies=(*TOPOLOGIES, *BEYOND_THE_PAPER))
    (distribution,) = study.distributions
    _refuse_other_graphs(study)
    table = Table(
        study,
        title="Table II: cosine distance to the Shapley value",
        columns=study.topologies,
        in_paper=frozenset(TOPOLOGIES),
        setting=distribution,
        overrides_of_column=lambda topology: [
            f"distribution={distribution}",
            *BEYOND_THE_PAPER.get(topology, [f"topology={topology}"]),
        ],
        baselines=False,
        paper_values=TABLE_2 if distribution == "iid" else {},
    )
    table.fill()


def _refuse_other_graphs(study: CellStudy) -> None:
    """Refuse settings by which a column would not be what it is called."""
    given = {override.lstrip("+").partition("=")[0] for override in study.request.overrides}
    for column in study.topologies:
        for setting in BEYOND_THE_PAPER.get(column, []):
            name = setting.partition("=")[0]
            if name in given:
                raise InvalidSetting(
                    f"topology={column} has {setting}: leave out {name}, or name another topology."
                )


if __name__ == "__main__":
    run_as_command(topologies)
