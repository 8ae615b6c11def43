"""Table I: TRIP-Shapley and the baselines of centralised learning against the Shapley value.

    python -m experiments.vs_shapley [scale=cpu] [dataset=fashion_mnist,cifar10] [model=cnn]
        [distribution=iid,sizes] [topology=regular] [seed=0,1,2] [normalization=paper]
        [utility=accuracy] [borders=2] [samples=512] [corrected=predictions] [out=DIR]
        [SETTING=VALUE ...]

`surrogate`, and nulls, which look at no coalition, are further rows. A small cosine distance
says little: below stand yardsticks that punish flat vectors, and who is nearer to the truth than
the nulls.

scale=paper is the paper's setting: eight clients, ten rounds of one local epoch, the whole training
set. scale=cpu trains the same network on fewer examples (of CIFAR-10 in smaller minibatches and
larger steps); scale=smoke is a test. Finished cells are
kept in DIR/cells and not run again; interrupted, the same command goes on where it was. Further
settings are those of `python -m trip_jax.run` (training.learning_rate=0.05); n_clients above 12
needs `samples`, how many coalitions are drawn for the Shapley values. `borders=2` executes those of
at most two clients and those that lack at most two: 74 of eight clients' 256. With either of them,
`corrected=predictions` or `corrected=surrogate` replays the other coalitions by that method.
"""

from collections.abc import Sequence

from experiments.harness.command_line import run_as_command
from experiments.paper.cells import CellStudy
from experiments.paper.paper_values import DISTRIBUTIONS, TABLE_1
from experiments.paper.tables import Table


def vs_shapley(arguments: Sequence[str]) -> None:
    """Fill Table I as far as it was asked for."""
    study = CellStudy("vs_shapley", arguments, distributions=DISTRIBUTIONS)
    (topology,) = study.topologies
    table = Table(
        study,
        title="Table I: cosine distance to the Shapley value",
        columns=study.distributions,
        in_paper=frozenset(DISTRIBUTIONS),
        setting=f"{topology} graph",
        overrides_of_column=lambda column: (f"distribution={column}", f"topology={topology}"),
        baselines=True,
        paper_values=TABLE_1 if topology == "regular" else {},
    )
    table.fill()


if __name__ == "__main__":
    run_as_command(vs_shapley)
