"""A folder of clients' records of predictions, read into the form of attribution/predictions.py.

A file NAME.predictions is a record as `Predictions.to_bytes` gives it, signed or not. Whatever a
file holds, it is read, or refused in one sentence that names it; no link is followed.
"""

import base64
import os
import stat
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from trip_node.attribution.predictions import Recorded, planned_bytes
from trip_node.node.admission import Federation, Refused
from trip_node.node.predictions import MOST_BYTES, MOST_HEADER, Predictions, separated
from trip_node.node.weights import shares
from trip_node.settings import require
from trip_node.settings.capacity import require_capacity
from trip_node.settings.errors import InvalidSetting
from trip_node.settings.names import order_of

SUFFIX = ".predictions"
ALIKE = ("federation", "test_set", "examples", "classes")
"""What all records have to agree in, beside the examples that they tell of."""

APART = 0.01
"""Of the size of logits: how far a client's start may be from the middle of all clients'."""

FEWER = "tell of fewer examples, or give records of fewer clients or rounds"


@dataclass(frozen=True)
class Told:
    """What a folder tells of a run."""

    recorded: Recorded
    names: list[str]  # of the n clients: integers by value, then strings
    rounds: list[int]  # their T numbers
    test_set: int  # examples in the shared test set
    places: np.ndarray  # of those that are told [D]


Files = dict[tuple[int, str], tuple[Path, Predictions]]
"""By round and client."""


def read_predictions(
    folder: Path, *, federation: Federation | None = None, missing: str = "refuse"
) -> Told:
    """The run that the records in a folder tell of.

    Args:
        federation: whose clients must have signed the records; None: signatures are not checked.
        missing: "refuse" a round that lacks a client's record, or take such a client, by "zero",
            to have kept its model. What others mixed of it is then its model of before.

    Raises:
        InvalidSetting: a file is no record, or records contradict one another or lack one.
    """
    require(folder.is_dir(), f"--predictions {folder} must be a folder of records.")
    paths = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    require(bool(paths), f"{folder} has no file that ends in {SUFFIX}: put clients' records there.")
    require_capacity(sum(path.lstat().st_size for path in paths), FEWER)
    files: Files = {}
    for path in paths:
        try:
            record = _read(path, federation)
        except InvalidSetting as error:
            raise InvalidSetting(f"{path}: {error}") from error
        earlier, same = files.setdefault((record.round, record.client), (path, record))
        require(
            same == record,
            f"{earlier} and {path} are different records of client {record.client!r} in round "
            f"{record.round}: keep the one that counts.",
        )
        _require_alike(*next(iter(files.values())), path, record)
    first = next(iter(files.values()))[1]
    names = sorted({name for _, name in files} | _members(files), key=order_of)
    rounds = sorted({round for round, _ in files})
    _require_all(files, names, rounds, missing)
    size = first.examples * first.classes
    require_capacity(planned_bytes(len(rounds), len(names), size), FEWER)
    return Told(_recorded(files, names, rounds), names, rounds, first.test_set, first.places)


def _read(path: Path, federation: Federation | None) -> Predictions:
    message, signature = separated(_content(path))
    if federation is None:
        return Predictions.from_bytes(message)
    try:
        text = None if signature is None else base64.b64encode(signature).decode()
        require(text is not None, "It is not signed: write it with to_bytes(signer).")
        return federation.admit_predictions(message, text)
    except Refused as error:
        raise InvalidSetting(error.why) from error


def _content(path: Path) -> bytes:
    """The bytes of a regular file of a record's size."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # nor wait at a pipe
    try:
        with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            about = os.fstat(file.fileno())
            require(stat.S_ISREG(about.st_mode), "it is no file.")
            most = 64 + MOST_HEADER + MOST_BYTES
            require(about.st_size <= most, f"a record has up to {most:,} bytes.")
            return file.read(most)
    except OSError as error:
        raise InvalidSetting(
            f"it can't be read as a file ({error.strerror}), and links are not followed."
        ) from error


def _require_alike(one: Path, first: Predictions, other: Path, record: Predictions) -> None:
    for name in ALIKE:
        here, there = getattr(first, name), getattr(record, name)
        require(
            here == there,
            f"{one} has {name} {here!r} and {other} {there!r}: all clients tell of one test set.",
        )
    require(
        bool((first.places == record.places).all()),
        f"{one} and {other} tell of other examples: all clients use one seed or list.",
    )


def _members(files: Files) -> set[str]:
    return {name for _, record in files.values() for name in record.members}


def _require_all(files: Files, names: list[str], rounds: list[int], missing: str) -> None:
    """Refuse rounds and clients without a record, unless these count as away."""
    if missing == "zero":
        return
    way_out = "add its record, or take the client to have kept its model with --missing zero."
    for before, after in pairwise(rounds):
        require(after == before + 1, f"No client has a record of round {before + 1}: {way_out}")
    for round in rounds:
        for name in names:
            require(
                (round, name) in files,
                f"Client {name!r} has no record of round {round}: {way_out}",
            )


def _recorded(files: Files, names: list[str], rounds: list[int]) -> Recorded:
    place = {name: i for i, name in enumerate(names)}
    n_rounds, n = len(rounds), len(names)
    start = _start(files)
    mixing = np.tile(np.eye(n), (n_rounds, 1, 1))
    present = np.zeros((n_rounds, n), bool)
    said = np.empty((2, n_rounds, n, *start.shape), np.float32)
    before = np.broadcast_to(start, (n, *start.shape))
    steps: dict[int, list[int]] = defaultdict(list)
    for t, round in enumerate(rounds):
        said[:, t] = before
        for name, i in place.items():
            if (round, name) not in files:
                continue
            _, record = files[round, name]
            said[:, t, i], present[t, i] = record.logits, True
            mixing[t, i] = 0
            share = shares(dict(zip(record.members, record.weights, strict=True)))
            mixing[t, i, [place[name] for name in share]] = list(share.values())
            steps[i].append(record.steps)
        before = said[1, t]
    mean_steps = np.array([np.mean(steps.get(i, [1])) for i in range(n)])
    return Recorded(start, said[0], said[1], mixing, present, mean_steps)


def _start(files: Files) -> np.ndarray:
    """F^0, in the middle of what clients say of it, on which most of them must agree."""
    told = {name: record.start for (_, name), (_, record) in files.items() if record.begins}
    require(
        bool(told),
        "No record tells of the model from which all begin: give it as start= in each client's "
        "first round.",
    )
    every = np.stack(list(told.values()))
    middle = np.asarray(np.median(every, axis=0))
    near = abs(every - middle).max(axis=(1, 2)) <= APART * max(abs(middle).max(), 1.0)
    strange = next((name for name, same in zip(told, near, strict=True) if not same), "")
    require(
        2 * near.sum() > len(every),
        f"Clients begin from different models, {strange!r} among them: all must begin from one.",
    )
    return middle
