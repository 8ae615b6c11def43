"""examples/p2p: processes that agree without a coordinator, and what their links refuse."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

pytest.importorskip("cryptography", reason="pip install trip-jax[serve]")

from examples.p2p.__main__ import digits, main, prepare, running, wait_for
from examples.p2p.learners import LEARNERS
from examples.p2p.links import Links
from examples.p2p.peer import MODEL_SCHEMA, Peer, Settings
from examples.p2p.simulated import SIZES
from examples.p2p.wire import (
    LONGEST_LINE,
    MODEL,
    MOST,
    About,
    Broken,
    frame,
    from_bytes,
    opened,
    read_frame,
    sealed,
    to_bytes,
)
from tests.conftest import rarely
from trip_jax.coordinate import main as coordinate
from trip_jax.node import Report
from trip_jax.node.admission import Federation
from trip_jax.node.gossip import Signed
from trip_jax.node.signing import Signer

ROOT = Path(__file__).parents[1]
SIGNERS = {name: Signer(bytes([k + 1]) * 32) for k, name in enumerate(("ann", "bob", "cleo"))}
KEYS = {name: base64.b64decode(signer.public) for name, signer in SIGNERS.items()}
FEDERATION = Federation("f", KEYS, operator=None, first_round=1)


@pytest.mark.parametrize(("model", "nodes"), [("numpy", 5), rarely("torch", 8)])
def test_honest_nodes_agree_with_each_other_and_with_the_simulator(
    model: str, nodes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_spec(model) is None:
        pytest.skip("pip install torch")
    asked = ["--nodes", str(nodes), "--rounds", "2", "--model", model, "--out", str(tmp_path)]
    code = main([*asked, "--equivocator", "node1"])
    said = capsys.readouterr().out
    assert code == 0 and said.count("yes  ") == 5, said
    assert {path.name for path in tmp_path.iterdir()} == {
        "keys.json",
        "federation.json",
        *(f"node{i}" for i in range(nodes)),
    }
    found = json.loads((tmp_path / "node0" / "phi.json").read_text())
    assert found["all_nodes_say_the_same"] and not found["refused"]
    table = str(tmp_path / "node0" / "reports.csv")
    out = tmp_path / "coordinated"  # the coordinator's command finds the same from a node's reports
    assert coordinate([table, "--out", str(out), "--missing", "zero"]) == 0
    lines = (out / "phi.csv").read_text().splitlines()[1:]
    told = np.array([float(line.split(",")[2]) for line in lines]).reshape(nodes, nodes)
    np.testing.assert_allclose(told, found["phi"], atol=1e-5)
    assert main(asked) == 2  # the directory is not empty


@pytest.mark.thorough
def test_interrupted_nodes_leave_nothing_running(tmp_path: Path) -> None:
    arguments = ["--model", "numpy", "--nodes", "5", "--out", str(tmp_path), "--rounds", "100"]
    command = [sys.executable, "-m", "examples.p2p", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(600):
            if len([*tmp_path.glob("*/port.json")]) == 5:
                break
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and said == "interrupted\n"
    assert not "".join(path.read_text() for path in tmp_path.glob("*/log.txt"))


def test_nothing_is_expected_of_a_neighbour_that_died_before_it_was_met(tmp_path: Path) -> None:
    neighbours = {"a": ["b", "c"], "b": ["a"], "c": ["a"]}
    settings = Settings(1, 0, "numpy", 0.5, dict.fromkeys(neighbours, 1), neighbours, "", 2)
    prepare(tmp_path, settings, [{}, {}, {}])

    async def calling() -> tuple[set[str], set[str]]:
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
        (tmp_path / "b" / "port.json").write_text(str(port))  # where nobody listens any more
        gone = asyncio.Event()

        async def lost() -> None:
            gone.set()

        keys = Federation.read(tmp_path / "keys.json"), Signer.at(tmp_path / "a" / "key")
        links = Links("a", *keys, neighbours["a"], tmp_path, 0.5, lambda *_: lost(), lost)
        async with links.open():
            await asyncio.wait_for(gone.wait(), 5)
            soon = links.expected()
            await asyncio.sleep(0.6)  # c never came
            return soon, links.expected()

    assert asyncio.run(calling()) == ({"c"}, set())


@pytest.mark.thorough
def test_the_others_go_on_without_a_node_that_is_killed(tmp_path: Path) -> None:
    names, graph = [f"node{i}" for i in range(6)], nx.circulant_graph(6, [1, 2])
    neighbours = {names[i]: [names[j] for j in sorted(graph[i])] for i in graph}
    data = digits(6, 0)
    sizes = {name: len(one["labels"]) for name, one in zip(names, data, strict=True)}
    prepare(tmp_path, Settings(40, 0, "numpy", 20.0, sizes, neighbours, "", 2), data)
    with running(tmp_path, names) as processes:
        while len([*tmp_path.glob("*/port.json")]) < 6:
            time.sleep(0.05)
        processes["node5"].kill()
        assert wait_for(processes, 120) == ["node5"]
    found = [json.loads((tmp_path / name / "phi.json").read_text()) for name in names[:5]]
    assert len({one["digest"] for one in found}) == 1
    assert len({json.dumps(one["phi"]) for one in found}) == 1
    assert sum(one["left_out"] for one in found) > 0


class Garbler(Peer):
    """An equivocator whose second report is no UTF-8."""

    _packets = 0

    def _packet(self, report: Report) -> bytes:
        self._packets += report.round == self.settings.equivocates_in
        if self._packets != 2:
            return super()._packet(report)
        message = report.to_json().encode("utf-16")
        return Signed(message, base64.b64decode(self._signer.sign(message))).to_bytes()


def run_beside(liar: type[Peer], folder: Path, patience: float = 30.0) -> dict[str, Any]:
    """What five nodes, the second of them a liar, write to phi.json after two rounds."""
    names, graph = [f"node{i}" for i in range(5)], nx.circulant_graph(5, [1, 2])
    neighbours = {names[i]: [names[j] for j in sorted(graph[i])] for i in graph}
    data = digits(5, 0)
    sizes = {name: len(one["labels"]) for name, one in zip(names, data, strict=True)}
    prepare(folder, Settings(2, 0, "numpy", patience, sizes, neighbours, "node1", 2), data)

    async def all_rounds() -> None:
        kinds = {name: liar if name == "node1" else Peer for name in names}
        await asyncio.gather(*(kind(folder, name).run() for name, kind in kinds.items()))

    asyncio.run(all_rounds())
    return {name: json.loads((folder / name / "phi.json").read_text()) for name in names}


class Poisoner(Peer):
    """Sends models whose numbers are too large for its neighbours to use."""

    size = 1e30

    def __init__(self, folder: Path, name: str):
        super().__init__(folder, name)
        send = self._links.send

        def poisoned(kind: bytes, content: bytes, **named: Any) -> None:
            if kind == MODEL:
                about, theta = opened(content, MODEL_SCHEMA, self._federation)
                fake = to_bytes(self.size * (-1.0) ** np.arange(len(theta) // 4))
                content = sealed(self._signer, MODEL_SCHEMA, about, fake)
            send(kind, content, **named)

        self._links.send = poisoned  # type: ignore[method-assign]


class LargePoisoner(Poisoner):
    size = 3e38


@pytest.mark.parametrize("liar", [Poisoner, rarely(LargePoisoner)])
def test_honest_nodes_leave_out_a_model_that_has_no_loss(liar: type[Peer], tmp_path: Path) -> None:
    found = run_beside(liar, tmp_path, patience=5.0)
    del found["node1"]  # which may have lost its neighbours
    assert len({json.dumps(one["phi"]) for one in found.values()}) == 1
    assert all(one["left_out"] == 2 for one in found.values())


def test_all_nodes_end_well_beside_one_that_signs_what_is_no_utf8(tmp_path: Path) -> None:
    found = [*run_beside(Garbler, tmp_path).values()]
    names = [f"node{i}" for i in range(5)]
    assert len({json.dumps(one["phi"]) for one in found}) == 1
    assert all(all(one["whole"]) for one in found)
    assert sum(one["refused"].get("malformed", 0) for one in found) > 1
    assert {(tmp_path / name / "equivocations.json").read_text() for name in names} == {"[]\n"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "4"], "--nodes must lie between 5 and 32"),
        (["--rounds", "1"], "--rounds must lie between 2"),
        (["--equivocator", "eve"], "--equivocator must be one of"),
        (["--patience", "0"], "--patience must be above 0"),
        (["--seed", "-1"], "--seed must be at least 0"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}") and error.count("\n") == 1


def test_what_is_sealed_is_opened_by_its_signature_alone() -> None:
    about = About("f", "ann", 1, "before")
    theta = np.arange(3, dtype=np.float32)
    packet = sealed(SIGNERS["ann"], "s/1", about, to_bytes(theta))
    found, content = opened(packet, "s/1", FEDERATION)
    assert found == about
    np.testing.assert_array_equal(from_bytes(content, 3), theta)
    wrong = [
        sealed(SIGNERS["ann"], "s/1", About("f", "ann", 1, "x" * LONGEST_LINE)),
        packet[:40],
        packet[:-1] + b"x",
        sealed(SIGNERS["bob"], "s/1", about),
        sealed(SIGNERS["ann"], "s/2", about),
        sealed(SIGNERS["ann"], "s/1", About("g", "ann")),
        sealed(SIGNERS["ann"], "s/1", About("f", "eve")),
        sealed(SIGNERS["ann"], "s/1", About("f", "ann", "1")),  # type: ignore[arg-type]
    ]
    for one in wrong:
        with pytest.raises(Broken):
            opened(one, "s/1", FEDERATION)
    for content in (b"", bytes(11), *(to_bytes(np.array([1, bad, 2])) for bad in (np.nan, 3e38))):
        with pytest.raises(Broken):
            from_bytes(content, 3)


@pytest.mark.parametrize("head", [b"X" + bytes(4), MODEL + (MOST + 1).to_bytes(4)])
def test_a_frame_is_bounded(head: bytes) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(head)
        await read_frame(reader)

    with pytest.raises(Broken):
        asyncio.run(read())


def links(folder: Path, name: str, signer: Signer, other: str, got: list[bytes]) -> Links:
    async def keep(whose: str, kind: bytes, content: bytes) -> None:
        assert whose == other and kind == MODEL
        got.append(content)

    async def lose() -> None:
        pass

    (folder / name).mkdir(exist_ok=True)
    return Links(name, FEDERATION, signer, [other], folder, 1.0, keep, lose)


@pytest.mark.parametrize("signed_by", ["bob", "cleo"])
def test_only_the_owner_of_a_key_is_listened_to(signed_by: str, tmp_path: Path) -> None:
    got: list[bytes] = []
    ann = links(tmp_path, "ann", SIGNERS["ann"], "bob", got)
    bob = links(tmp_path, "bob", SIGNERS[signed_by], "ann", [])

    async def meet() -> None:
        async with AsyncExitStack() as stack:
            for one in (ann, bob):
                await stack.enter_async_context(one.open())
            bob.send(MODEL, b"hello")
            while not (got or ann.broken):
                await asyncio.sleep(0.01)

    asyncio.run(meet())
    assert got == ([b"hello"] if signed_by == "bob" else [])
    assert ann.broken == (signed_by != "bob")


def test_a_stranger_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    ann = links(tmp_path, "ann", SIGNERS["ann"], "bob", [])

    async def knock(say: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> None:
        port = json.loads((tmp_path / "ann" / "port.json").read_text())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await say(writer)
        await asyncio.sleep(0.1)
        writer.close()

    async def garbage(writer: asyncio.StreamWriter) -> None:
        writer.write(frame(MODEL, b"x"))

    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0)

    async def meet() -> None:
        async with ann.open():
            await asyncio.gather(knock(garbage), knock(silence))

    began = time.monotonic()
    asyncio.run(meet())
    assert ann.broken == 1 and time.monotonic() - began < 10


@pytest.mark.parametrize("model", [*LEARNERS])
def test_learners_learn_and_have_the_simulators_sizes(model: str) -> None:
    if model == "torch":
        pytest.importorskip("torch", reason="pip install torch")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 200)
    images = (np.eye(10)[labels] @ rng.random((10, 64))).astype(np.float32)
    names = ("images", "labels", "test_images", "test_labels")
    learner = LEARNERS[model](dict(zip(names, (images, labels) * 2, strict=True)))
    start = learner.start()
    assert start.shape == (SIZES[model],) and start.dtype == np.float32
    trained = learner.train(start, np.random.default_rng(1))
    assert learner.loss(trained) < learner.loss(start)
    assert (learner.train(start, np.random.default_rng(1)) == trained).all()
