"""Reports without a coordinator: flooding and what each client traces, against loops."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference as ref
from tests.conftest import TINY, Command, refusal, tiny
from tests.test_against_oracle import DEFENCES
from trip_jax import Contribution, InvalidSetting, ProtocolConfig, load_run
from trip_jax.node import Report
from trip_jax.protocol.broadcast import BEHAVIOURS, BOTH, RAISED, Broadcast, Outcome
from trip_jax.protocol.defences import AdoptAll, Audit, Defence
from trip_jax.protocol.flooding import Links
from trip_jax.runs.costs import packet_bytes
from trip_jax.topology import Topology, build

N, ROUNDS = 7, 2
WORLD = nx.watts_strogatz_graph(6, 4, 0.3, seed=1)


def world(seed: int, directed: bool = False) -> Topology:
    """A new graph in each round, some of which are not connected."""
    edges = 18 if directed else 9  # as many arcs, so that all share programs
    graphs = [nx.gnm_random_graph(N, edges, seed + t, directed) for t in range(ROUNDS)]
    return build(graphs, np.arange(1, N + 1)).padded(N)


def drawn(topology: Topology, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(0.1, 0.05, (ROUNDS, *topology.graphs.mask.shape[1:])).astype(np.float32)


def shares_of(topology: Topology) -> np.ndarray:
    return np.stack([np.asarray(topology.at(t).shares) for t in range(ROUNDS)])


def outcome(broadcast: Broadcast, topology: Topology, seed: int, audit: Audit) -> Outcome:
    return broadcast(topology, drawn(topology, seed), shares_of(topology), audit, seed)


class Oracle:
    """The same by loops: each report alone, each client alone, each past by walking back."""

    def __init__(self, broadcast: Broadcast, topology: Topology, seed: int, defence: Defence):
        self.defence = defence
        self.graphs = [jax.tree.map(np.asarray, topology.at(t)) for t in range(ROUNDS)]
        does, self.liars = broadcast.behaviour, broadcast.who_lies(N, seed).tolist()
        self.reported = drawn(topology, seed)
        self.has = [[set[tuple[int, int]]() for _ in range(N)] for _ in range(ROUNDS)]
        self.messages, self.forged = np.zeros((2, ROUNDS, N), int)
        self.neighbours = [self.around(t) for t in range(ROUNDS)]
        for t, near in enumerate(self.neighbours):
            ends = [(j, i) for i in range(N) for j in sorted({*near[i], i})]
            second = self.liars if does.versions == 2 else []
            whose = [(i, 0) for i in range(N)] + [(i, 1) for i in second]
            draws = np.random.default_rng([seed, 5, t]).random((len(ends), len(whose)))
            for r, (owner, version) in enumerate(whose):

                def lost(a: int, b: int, r: int = r, draws: Any = draws, ends: Any = ends) -> bool:
                    return bool(draws[ends.index((a, b)), r] < broadcast.drop)

                def tells(other: int, i: int = owner, v: int = version, near: Any = near) -> bool:
                    if i not in self.liars or does.versions == 1:
                        return True
                    return does.versions == 2 and sorted(near[i]).index(other) % 2 == v

                def passes(client: int) -> Literal["as it is", "altered", "not"]:
                    if client not in self.liars or does.relays:
                        return "as it is"
                    return "altered" if does.forges else "not"

                hop, sent, refused = ref.flood(near, owner, tells, passes, lost, broadcast.hops)
                self.messages[t, owner] += sent
                self.forged[t, owner] += refused
                for client in hop:
                    self.has[t][client].add((owner, version))

    def around(self, t: int) -> list[set[int]]:
        near: list[set[int]] = [set() for _ in range(N)]
        for i, j in self.arcs(t):
            if i != j:
                near[i].add(j)
                near[j].add(i)
        return near

    def arcs(self, t: int) -> list[tuple[int, int]]:
        here = self.graphs[t]
        return [(i, int(j)) for i in range(N) for j in here.members[i][here.mask[i]]]

    def counted(self, client: int, t: int, i: int) -> int | None:
        """The version of a report that counts with a client."""
        versions = [v for j, v in self.has[t][client] if j == i]
        return versions[0] if len(versions) == 1 else None

    def phi(self, client: int) -> np.ndarray:
        phi = np.zeros((N, N))
        for t in range(ROUNDS):
            here = self.graphs[t]
            lcvs, weights = [], []
            for i in range(N):
                version, mask = self.counted(client, t, i), here.mask[i]
                if version is None:
                    lcvs.append({i: 0.0})
                    weights.append({i: 1.0})
                    continue
                members = here.members[i][mask].tolist()
                told = dict(zip(members, self.reported[t, i][mask].tolist(), strict=True))
                lcvs.append(told | {i: told[i] + RAISED * version})
                share = here.weights[i][mask].tolist()
                weights.append(dict(zip(members, share, strict=True)))
            if self.defence.c2:
                chosen = self.defence.calibrated()
                assert chosen.penalty and chosen.distance
                lcvs, _, _ = ref.detect_outliers(lcvs, chosen.penalty, chosen.distance, "soft")
            phi = ref.update_contributions(phi, lcvs, weights)
        return phi

    def knows(self, client: int, i: int, t: int) -> bool:
        """Whether a client has the causal past of i's row after round t - 1."""
        if t == 0:
            return True
        versions = {v for j, v in self.has[t - 1][client] if j == i}
        if self.defence.c2:
            there = {j for j, _ in self.has[t - 1][client]}
            return len(there) == N and self.knows(client, i, t - 1)
        if len(versions) == 2:
            return self.knows(client, i, t - 1)
        members = [j for k, j in self.arcs(t - 1) if k == i]
        return bool(versions) and all(self.knows(client, j, t - 1) for j in members)


BROADCASTS = st.builds(
    Broadcast,
    drop=st.sampled_from([0.0, 0.3]),
    hops=st.sampled_from([None, 1, 2]),
    liars=st.sampled_from([0.0, 0.15, 0.4]),
    behaviour=st.sampled_from([BEHAVIOURS[name] for name in BEHAVIOURS]),
)


@given(BROADCASTS, st.integers(0, 10_000), st.booleans(), st.sampled_from([False, False, True]))
def test_every_client_finds_what_loops_find(
    broadcast: Broadcast, seed: int, directed: bool, c2: bool
) -> None:
    topology, defence = world(seed, directed), Defence(c2=c2)
    found = outcome(broadcast, topology, seed, defence.audit())
    oracle = Oracle(broadcast, topology, seed, defence)
    honest = [i for i in range(N) if i not in oracle.liars]
    assert found.liars.tolist() == oracle.liars
    np.testing.assert_array_equal(found.messages, oracle.messages)
    np.testing.assert_array_equal(found.forged, oracle.forged)
    for t in range(ROUNDS):
        there = [{i for i, _ in oracle.has[t][h]} for h in honest]
        if broadcast.behaviour.versions == 0:
            there = [one - set(oracle.liars) for one in there]
        reach = [np.mean([i in one for one in there]) for i in range(N)]
        np.testing.assert_allclose(found.reach[t], reach)
        graph = nx.Graph((i, j) for i in honest for j in oracle.neighbours[t][i] if j in honest)
        graph.add_nodes_from(honest)
        assert found.connected[t] == nx.is_connected(graph)
    for k, h in enumerate(honest):
        np.testing.assert_allclose(found.phi[found.set_of[k]], oracle.phi(h), atol=2e-5)
        whole = [oracle.knows(h, i, ROUNDS) for i in range(N)]
        assert found.whole[found.set_of[k]].tolist() == whole


@given(BROADCASTS, st.integers(0, 10_000))
def test_rows_with_their_causal_past_never_differ(broadcast: Broadcast, seed: int) -> None:
    """Bit for bit, whatever is lost and whoever withholds or forges; reach has no part in it."""
    found = outcome(broadcast, world(seed), seed, AdoptAll())
    for row in range(N):
        told = {phi[row].tobytes() for phi in found.phi[found.whole[:, row]]}
        assert len(told) <= 1 or broadcast.behaviour.versions == 2
        if broadcast.behaviour.versions < 2:
            assert told <= {found.complete[row].tobytes()}


@pytest.mark.parametrize("behaviour", [*BEHAVIOURS])
def test_all_agree_where_honest_clients_are_connected(behaviour: str) -> None:
    topology = build([nx.circulant_graph(N, [1, 2])] * ROUNDS, np.ones(N))
    found = outcome(Broadcast(liars=0.2, behaviour=BEHAVIOURS[behaviour]), topology, 1, AdoptAll())
    assert len(found.liars) == 1 and found.connected.all()
    assert len(found.phi) == 1 and found.agreeing.all() and found.right.all()
    assert (found.known.mean() == 1) == (behaviour != "withhold")
    if behaviour == "equivocate":
        assert found.proved == 1 and not found.difference.any()
    links = Links.of(np.asarray(topology.at(0).members), np.asarray(topology.at(0).mask))
    assert links.own.sum() == N and (np.bincount(links.source) == 5).all()
    assert BOTH == 3  # one and two


def test_who_has_one_neighbour_cannot_equivocate() -> None:
    """On a line the first and the last client; any other one parts the honest."""
    line = build([nx.path_graph(N)] * ROUNDS, np.ones(N)).padded(N)
    broadcast, ends = Broadcast(liars=0.15, behaviour=BEHAVIOURS["equivocate"]), 0
    for seed in range(8):
        found = outcome(broadcast, line, seed, AdoptAll())
        at_an_end = set(found.liars) <= {0, N - 1}
        assert found.right.all() == at_an_end == found.connected.all() == np.isnan(found.proved)
        assert at_an_end or found.proved == 0
        ends += at_an_end
    assert 0 < ends < 8


@pytest.mark.thorough
def test_reports_that_all_arrive_give_the_coordinators_phi() -> None:
    result = tiny(WORLD, protocol="broadcast", defence=DEFENCES["both"]).run()
    plain = tiny(WORLD, defence=DEFENCES["both"]).run()
    assert result.broadcast is not None and plain.broadcast is None
    np.testing.assert_array_equal(result.models, plain.models)
    np.testing.assert_array_equal(result.phi, plain.phi)
    np.testing.assert_allclose(result.broadcast.complete, plain.phi, atol=1e-6)
    assert result.broadcast.right.all()


@pytest.mark.thorough
def test_a_run_says_who_agrees(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trip_jax.runs.directory.draw_figures", lambda *_: None)
    settings = (*TINY, "protocol=broadcast", "protocol.liars=0.4", "hydra.run.dir=run")
    told = command(*settings, "protocol.behaviour=equivocate", "topology=ring")
    assert told.code == 0 and "100 % of honest clients have the same contributions" in told.out
    run = load_run("run")
    (liar,) = run.summary["broadcast"]["liars"]
    assert run.summary["broadcast"]["equivocations_proved"] == 1
    assert run.data.misbehaves.values.tolist() == [i == liar for i in range(3)]
    assert np.isnan(run.data.agrees.values).tolist() == [i == liar for i in range(3)]
    assert np.nanmin(run.data.rows_known) == 1
    sent = int(run.data.report_messages.sum())
    # On a circle of three a report is sent 2 + 1 + 1 times, each of two versions 1 + 1 + 1 times.
    assert sent == run.summary["broadcast"]["messages"] == 2 * (2 + 1 + 1) + 2 * (1 + 1 + 1)
    assert run.summary["costs"]["bytes_sent"]["reports"] == sent * packet_bytes(3, 3)
    assert "Reports between clients" in Path("run/report.html").read_text()
    assert command("--verify", "run").code == 0


def test_bytes_are_those_of_nodes() -> None:
    pytest.importorskip("cryptography", reason="pip install trip-jax[serve]")
    from trip_jax.node.gossip import Signed

    for m in (1, 5, 9):
        names = tuple(map(str, range(90, 90 + m)))
        lcv = tuple(np.random.default_rng(m).normal(0.05, 0.01, m).tolist())
        told = Report(names[0], 12, names, (600.0,) * m, lcv, (0.0,) * m, min(2**m, 1024))
        size = len(Signed(told.to_json().encode(), bytes(64)).to_bytes())
        assert packet_bytes(m, 100) == pytest.approx(size, rel=0.03)
        assert json.loads(told.to_json())["client"] == "90"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("protocol.drop=0.1",), "has no effect with protocol=coordinator"),
        (("protocol=broadcast", "protocol.behaviour=forge"), "no effect with protocol.liars=0"),
        (("protocol=broadcast", "protocol.drop=1"), "protocol.drop must be at least 0 and below"),
        (("protocol=broadcast", "protocol.hops=0"), "protocol.hops must be at least 1"),
        (("protocol=broadcast", "protocol.liars=0.1"), "less than one client"),
        (("protocol=broadcast", "protocol.liars=0.9"), "leaves nobody honest"),
        (("protocol=broadcast", "trust=phi"), "set trust=own"),
        (("protocol=broadcast", "participation=bernoulli"), "set participation=always"),
        (("protocol=broadcast", "schedule=events"), "schedule=synchronous"),
        (("protocol=broadcast", "contribution.method=surrogate"), "or protocol=coordinator"),
        (("protocol=broadcast", "keep_phi=false"), "set keep_phi=true"),
    ],
)
def test_hostile_settings_are_one_sentence(settings: tuple[str, ...], said: str) -> None:
    assert said in refusal(*settings)


def test_in_python_a_name_will_do() -> None:
    plain = tiny(WORLD, contribution=Contribution("loss"))
    assert plain.broadcast is None
    assert tiny(WORLD, protocol=ProtocolConfig("broadcast", hops=2)).broadcast == Broadcast(hops=2)
    with pytest.raises(InvalidSetting, match="must be one of"):
        tiny(WORLD, protocol="flood")
    assert replace(Broadcast(), drop=0.1) != Broadcast()
