"""The base class of methods, which compute contributions, and the registry of all of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from trip_jax.learning.learner import Learner
from trip_jax.protocol.aggregation import AnyRule
from trip_jax.protocol.messages import Inbox
from trip_jax.protocol.methods.facts import PAGE, About, Costs, Sees, Unit, When
from trip_jax.protocol.round import Round
from trip_jax.protocol.state import Contributions
from trip_jax.settings import Kinds, of_this_package, require

SAID = ("unit", "reads", "costs")
"""What every class in `METHODS` has to say of itself."""


class Method(ABC):
    """A method that computes contributions; hashable, as frozen dataclasses are.

    Its class says what the settings' checks, results.nc, pages and tables need to know.

    Attributes:
        unit: what contributions are measured in; `GAIN` for gains in utility.
        reads: the settings of `contribution` that it reads beside utility, max_coalitions and
            coalition_batch; all others are refused beside it.
        costs: what the method costs a client.
        told: when contributions are known.
        sees: what whoever computes them must see.
        reports_as: the method by which clients report in each round, if that is another.
        same_training: whether it takes what training changes in a model for the same function of
            that model in every round.
        personal: whether it can compute contributions where clients keep a part of their models.
        needs_classes: whether labels must be classes of examples, not numbers or tokens.
        label: the name of the method in tables; without it, the name by which it is registered.
            Subclasses do not inherit it.
        plays_games: whether clients play games of coalitions. `work` then takes, as a third
            argument, which clients play the same game; None: none do.
        reports: whether clients report anything in a round.
        bytes_kept: the bytes of each number that is kept of a client, see `keeps_updates`.
        explained: sentences on what contributions are, for the page of a run. If it is empty, the
            page refers to the documentation, or quotes the first line of the class's docstring if
            the class is from outside the package.
    """

    unit: ClassVar[Unit]
    reads: ClassVar[Sequence[str]]
    costs: ClassVar[Costs]
    told: ClassVar[When] = When.EACH_ROUND
    sees: ClassVar[Sees] = Sees.NEIGHBOURS
    reports_as: ClassVar[str | None] = None
    same_training: ClassVar[bool] = False
    personal: ClassVar[bool] = False
    needs_classes: ClassVar[bool] = False
    label: ClassVar[str]
    plays_games: ClassVar[bool] = False
    reports: ClassVar[bool] = True
    bytes_kept: ClassVar[int] = 4
    explained: ClassVar[str] = ""

    @classmethod
    def build(cls, settings: Any) -> "Method":
        """The method by settings: each of its fields is the setting of the same name.

        Args:
            settings: a `Contribution`.
        """
        names: list[str] = (
            [one.name for one in fields(cls) if one.init] if is_dataclass(cls) else []  # type: ignore[redundant-expr]
        )
        return cls(**{name: getattr(settings, name) for name in names})

    def facing(self, lie: Any, check: Any) -> "Method":
        """The method in a federation with this lie and this check of predictions.

        Args:
            lie: a `Lie`.
            check: a `Check`.
        """
        return self

    @classmethod
    def about(cls) -> About:
        """What readers of a run's numbers need to know of the method."""
        said = cls.explained or (PAGE if of_this_package(cls) else cls._first_line())
        return About(cls.unit, cls.told, cls.sees, cls.reports_as or "", said)

    @classmethod
    def in_words(cls) -> str:
        """The method in two sentences, for the command line's help."""
        facts = f"Told {cls.told}, from {cls.sees}; measured in {cls.unit.words}."
        return f"{cls._first_line()} {facts}".strip()

    @classmethod
    def _first_line(cls) -> str:
        """The first line of the docstring, if a person wrote one."""
        first = (cls.__doc__ or "").strip().partition("\n")[0]
        generated = first.startswith(f"{cls.__name__}(")  # by `dataclass`
        return "" if generated else first

    @property
    def sends_before(self) -> bool:
        """Whether it needs models before training, which are sent for it alone."""
        return True

    @property
    def in_rounds(self) -> "Method":
        """The method by which clients report in each round: itself, unless it is beside another."""
        return self

    @property
    def keeps_updates(self) -> bool:
        """Whether what clients send for it in each round is kept on disk until the run is over.

        That is their updates, or what their models say of the test set.
        """
        return False

    @property
    def in_journal(self) -> "Method":
        """The method whose journal it can conclude from, if updates are kept beside it."""
        return self

    def work(self, n_members: Int[np.ndarray, "G n"], batch: int) -> Any:
        """What is prepared for neighbourhoods of so many members, as a pytree of arrays [G, ...].

        By default nothing.

        Raises:
            InvalidSetting: it is too much.
        """
        return None

    def n_models(self, work: Any, n_members: Int[np.ndarray, "G n"]) -> Int[np.ndarray, " G"]:
        """How many models are evaluated in a round; by default each client's next model."""
        return np.full(len(n_members), n_members.shape[1])

    @abstractmethod
    def __call__(
        self, inbox: Inbox, this_round: Round, mix: AnyRule, learner: Learner
    ) -> Contributions:
        """The contributions that all clients find of their neighbours in a round."""


class Methods(Kinds[type[Method]]):
    """The registry of methods, whose classes say what they are."""

    def __call__(
        self, name: str, reads: Sequence[str] | None = None
    ) -> Callable[[type[Method]], type[Method]]:
        """A decorator that adds a class derived from `Method`.

        Raises:
            InvalidSetting: it is none, or does not say its unit, what it reads or what it costs.
        """
        add_named = super().__call__(name, reads)

        def add(method: Any) -> type[Method]:
            setting = f"{self.setting}={name}"
            require(
                isinstance(method, type) and issubclass(method, Method),
                f"{setting} must be a class derived from Method, not {method!r}: "
                "trip_jax.protocol.methods.method has it.",
            )
            lacking = [one for one in SAID if not hasattr(method, one)]
            require(
                not lacking,
                f"{setting} must say its {' and '.join(lacking)}: give the class "
                f"{method.__name__} the attribute{'s' * (len(lacking) > 1)}, as Method explains.",
            )
            return add_named(method)

        return add


METHODS = Methods("contribution.method")
"""Classes of `Method`, which say what they are; `build` makes one from the settings."""
