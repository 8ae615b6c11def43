"""The rounds of a federation: timed, to the last or one that diverges."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from trip_jax.attribution import Journal, Updates
from trip_jax.learning.memory import PlannedMemory
from trip_jax.learning.privacy import Guarantee
from trip_jax.protocol import algorithm
from trip_jax.protocol.broadcast import Outcome
from trip_jax.protocol.methods.whole_run import that_waits
from trip_jax.protocol.state import Record
from trip_jax.settings import require
from trip_jax.settings.errors import Diverged
from trip_jax.simulation.history import Clock, Past, Result
from trip_jax.simulation.prepared import Prepared
from trip_jax.simulation.rounds import FiledRounds, stacked


class Simulation(Prepared):
    __doc__ = Prepared.__doc__

    def run(
        self,
        on_round: Callable[[Past], bool | None] | None = None,
        on_start: Callable[[PlannedMemory | None], None] | None = None,
        past: Past | None = None,
        updates: Path | None = None,
        rounds: Path | None = None,
        on_part: Callable[[float], None] | None = None,
    ) -> Result:
        """All rounds from the start, or from where an earlier run was.

        Args:
            on_round: called after each round; the run ends there if it returns True.
            on_start: called before the first round with the `planned_memory`.
            past: of a run of the same federation, to go on from.
            updates: the folder where a method that waits for the end keeps updates, and kept those
                of `past`; a temporary one if None.
            rounds: likewise the folder where records are kept that are large.
            on_part: called at the end of such a run with the share of its contributions that are
                told, which may take longer than its rounds.

        Raises:
            Diverged: a model is no longer finite; the error carries what came before.
            InvalidSetting: rounds take more memory than there is.
        """
        mesh, began = self.learner.mesh, time.perf_counter()
        programs, planned = self.plan()
        compile_seconds = time.perf_counter() - began
        timings = list(past.timings) if past else []
        records = self._records(past, planned, rounds)
        state = self.start()
        initial = np.asarray(state.utility)[0]
        require(
            bool(np.isfinite(initial).all()),
            "The model starts with a loss that is not finite, before any training: look at what "
            "Model.init draws, what Model.apply computes, and the scale of the examples.",
        )
        if past:
            state = self.placement.placed(past.state)
        kept = Updates(updates, len(records)) if self.keeps_updates else None
        if on_start:
            on_start(planned)

        def result() -> Result:
            of_rounds = stacked(records)
            return Result(
                phi=None if state.phi is None else np.asarray(state.phi),
                initial=initial,
                models=self.placement.collected(state).models,
                records=replace(of_rounds, kept=kept) if kept is not None else of_rounds,
                topology=self.topology,
                contribution=self.contribution,
                liars=self.liars,
                timings=timings,
                compile_seconds=compile_seconds,
                n_devices=mesh.size,
                planned_bytes=planned.total if planned else None,
                precision=self.learner.precision,
                message_bytes=self.rules.channel.message_bytes(self.learner.model),
                guarantee=self._guarantee(len(records)),
            )

        def concluded(result: Result) -> Result:
            if self.broadcast:
                return replace(result, broadcast=self._without_coordinator(result.records))
            if (method := that_waits(self.rules.contribute)) is None:
                return result
            if len(result.timings) < self.training.rounds:  # more than it is worth
                return replace(result, phi=np.full((self.n, self.n), np.nan, np.float32))
            journal = Journal.of(result.records, self.topology, self.learner)
            key = jax.random.fold_in(self.root, self.n + 1)  # training and truths fold in 0 to n
            told = method.conclude(journal, self.learner, key, on_part)
            column = self.rules.utility

            def of_utility(values: np.ndarray | None) -> np.ndarray | None:
                return None if values is None else values[..., column].astype(np.float32)

            return replace(
                result,
                phi=of_utility(told.phi),
                phi_error=of_utility(told.error),
                score_error=of_utility(told.score_error),
            )

        clock = Clock(self.on_its_data(programs))
        samples = int(np.asarray(self.data.sizes).sum()) * self.training.local_epochs
        for t in range(int(state.round), self.training.rounds):
            new_state, record = algorithm.step(clock.programs, state)
            if kept is not None:
                new_updates, record = np.asarray(record.kept), replace(record, kept=None)
            record = jax.tree.map(np.array, record)  # copies, not to hold on to device arrays
            if (diverged := record.diverged(self.liars)) is not None:
                whose = self.names[diverged] if self.names else diverged
                raise Diverged(t, whose, concluded(result()) if records else None)
            state = new_state
            if kept is not None:
                kept.keep(t, new_updates)
            records.append(record)
            coalitions = int(self.coalitions[self.topology.graph_of(t)])
            timings.append(replace(clock.timing(), samples=samples, coalitions=coalitions))
            if on_round and on_round(Past(state, records, timings)):
                break
        return concluded(result())

    def _guarantee(self, rounds: int) -> Guarantee | None:
        """What holds after so many rounds for the client that took part in most of them."""
        present = self.topology.present
        most = rounds if present is None else int(present[:rounds].sum(axis=0).max())
        return self.learner.mechanism.guarantee(most, self.privacy.delta)

    def _without_coordinator(self, records: Record) -> Outcome:
        """What clients find from their reports of all rounds."""
        assert self.broadcast
        reported = np.array(records.reported)
        for t, arrived in enumerate(np.asarray(records.arrived)):  # of other models nothing is told
            reported[t][np.asarray(self.topology.at(t).lost(jnp.asarray(~arrived)))] = 0
        shares = np.asarray(records.shares)
        return self.broadcast(self.topology, reported, shares, self.rules.audit, self.seed)

    def _records(
        self, past: Past | None, planned: PlannedMemory | None, folder: Path | None
    ) -> list[Record] | FiledRounds:
        """Those of the rounds before, to be added to."""
        before = past.records if past else []
        if isinstance(before, FiledRounds):
            return before
        if planned and planned.files_records and not before:
            return FiledRounds(folder, size=planned.records)
        return list(before)
