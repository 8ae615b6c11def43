"""Data sets from a file: what is read, whose examples they are, and what is refused."""

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import trip_jax as tj
from tests.conftest import TINY, Command, config_of, rarely, refusal
from trip_jax.cli.own_code import with_own_code
from trip_jax.data.federation import ClientData
from trip_jax.runs.prepare import lay_out
from trip_jax.runs.provenance import arrays_hash, files_hash
from trip_jax.runs.verify import verify
from trip_jax.settings.errors import InvalidSetting
from trip_jax.settings.own_code import refuse_own_code

RNG = np.random.default_rng(3)
N = 60
AGE = RNG.integers(20, 90, N)
SEX = RNG.choice(["f", "m"], N)
WARD = np.resize(["b", "é", "10", "9"], N)  # every client has 15
DIED = np.resize(["yes", "no", "no"], N)
TABLE = {"age": AGE, "sex": SEX, "ward": WARD, "died": DIED}


def csv_of(columns: dict[str, Any], separator: str = ",") -> str:
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def table(folder: Path, name: str = "x.csv", **changes: Any) -> Path:
    """The table with some columns changed, added or, if None, left out."""
    columns = {key: it for key, it in (TABLE | changes).items() if it is not None}
    path = folder / name
    if path.suffix == ".parquet":
        parquet.write_table(pa.table({key: list(it) for key, it in columns.items()}), path)
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        path.write_text(csv_of(columns, separator), encoding="utf-8")
    return path


def loaded(path: Path, seed: int = 0, **settings: Any) -> tj.Dataset:
    usual: dict[str, Any] = {"label": "died", "test_size": None}
    return tj.load_dataset(tj.DatasetConfig("file", path=str(path), **usual | settings), seed)


def refused(path: Path, **settings: Any) -> str:
    with pytest.raises(InvalidSetting) as error:
        loaded(path, **settings)
    said = str(error.value)
    assert said.endswith((".", "?")) and "\n" not in said
    return said


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.parquet"])
def test_a_table_becomes_features_classes_and_clients(tmp_path: Path, name: str) -> None:
    data = loaded(table(tmp_path, name), client="ward")
    assert len(data.train_labels) + len(data.test_labels) == N and data.n_classes == 2
    assert data.train_images.shape[1:] == (3,)  # the age, and one for each sex
    for values in (data.train_images[:, 0].mean(), data.train_images[:, 0].std() - 1):
        assert abs(values) < 1e-6
    assert data.train_clients is not None and data.test_clients is not None
    for ward in ("b", "é", "10", "9"):
        assert (data.test_clients == ward).sum() == 3  # a fifth of fifteen
    # A row is still what it was in the file: age, sex, ward and label go together.
    rows = set(zip(*(column.tolist() for column in (WARD, DIED, SEX, AGE)), strict=True))
    raw = loaded(table(tmp_path, name), client="ward", standardise=False)
    assert raw.train_clients is not None
    found = {
        (str(who), "yes" if label else "no", "m" if x[2] else "f", round(float(x[0])))
        for who, label, x in zip(raw.train_clients, raw.train_labels, raw.train_images, strict=True)
    }
    assert found <= rows and len(found) > 30


def test_the_same_seed_draws_the_same_test_set_and_another_another(tmp_path: Path) -> None:
    path = table(tmp_path)
    one, again, other = (loaded(path, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.test_images, again.test_images)
    assert not np.array_equal(one.test_images, other.test_images)


def test_a_column_says_which_examples_are_for_testing(tmp_path: Path) -> None:
    split = np.resize(["train", "train", "test"], N)
    data = loaded(table(tmp_path, part=split), split="part", client="ward", standardise=False)
    np.testing.assert_array_equal(data.test_images[:, 0], AGE[split == "test"])
    np.testing.assert_array_equal(data.train_images[:, 0], AGE[split == "train"])


def test_a_table_of_a_spreadsheet_with_decimal_commas_and_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    prices = [f"{k},5" for k in range(N)]
    path.write_text("\ufeff" + csv_of(TABLE | {"price": prices}, ";"), encoding="utf-8")
    data = loaded(path, client="ward", standardise=False, drop=("age", "sex"))
    assert set(data.train_images[:, 0].tolist()) <= {k + 0.5 for k in range(N)}


def shares(path: Path, **settings: Any) -> ClientData:
    data = loaded(path, client="ward", **settings)
    return tj.distribute(data, 4, "natural").data


def test_clients_have_names_and_the_rows_that_bear_them(tmp_path: Path) -> None:
    data = shares(table(tmp_path), standardise=False)
    assert data.names == ("9", "10", "b", "é")
    images, owned = np.asarray(data.images), np.asarray(data.examples)
    for name, row, size in zip(data.names, owned, np.asarray(data.sizes), strict=True):
        mine = images[row[:size]][:, 0]
        assert size == 12 and set(mine.tolist()) <= set(AGE[name == WARD].tolist())


FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a label that is no column": ({}, {"label": "dies"}, "dataset.label=dies: .*did you mean died"),
    "no label": ({}, {"label": None}, "dataset.label, one of age, sex, ward, died"),
    "a client that is no column": ({}, {"client": "city"}, "dataset.client=city: .*but age, sex"),
    "a column named twice": ({}, {"client": "died"}, "also named by dataset.label"),
    "nothing but labels": ({}, {"drop": ("age", "sex", "ward")}, "has no column beside"),
    "a dropped label": ({}, {"drop": ("died",)}, "also named by dataset.drop"),
    "a missing value": ({"age": ["", *AGE[1:]]}, {}, "lacks the value of column 'age' in 1 row of"),
    "NaN": ({"age": ["nan", *AGE[1:]]}, {}, r"column 'age' in 1 row .*dataset\.drop=\[age\]"),
    "an infinity": ({"age": ["inf", *AGE[1:]]}, {}, "column 'age' that are not finite"),
    "1e300": ({"age": ["1e300", *AGE[1:]]}, {"standardise": False}, "not finite, or too large"),
    "text among numbers": ({"age": ["old", *AGE[1:]]}, {}, "in column 'age', but 'old' in 1 row"),
    "texts without end": ({"sex": [f"s{k}z" for k in range(N)] }, {"most": 20}, "sex"),
    "one class": ({"died": ["no"] * N}, {}, "is no in all rows"),
    "fractions as classes": ({"died": RNG.normal(size=N)}, {}, "holds fractions"),
    "a class for each row": ({"died": np.arange(N)}, {}, "has 60 different values in 60 rows"),
    "a missing class": ({"died": ["", *DIED[1:]]}, {}, "lacks the value of column 'died'"),
    "a missing client": ({"ward": ["", *WARD[1:]]}, {"client": "ward"}, "column 'ward' in 1 row"),
    "fractions as clients": ({"ward": RNG.normal(size=N)}, {"client": "ward"}, "whole numbers"),
    "names that show as one": (
        {"ward": ["e\u0301", *WARD[1:]]},
        {"client": "ward"},
        "names two clients 'é'",
    ),
    "a split of other words": ({"part": ["dev"] * N}, {"split": "part"}, "must say train or test"),
    "a split without tests": ({"part": ["train"] * N}, {"split": "part"}, "says test of no"),
    "dates": ({"age": ["2020-01-01"] * N}, {}, "date32"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_table_is_told_in_a_sentence(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, settings, words = FAULTS[fault]
    if most := settings.pop("most", None):
        monkeypatch.setattr("trip_jax.data.files.MOST_VALUES", most)
    said = refused(table(tmp_path, **changes), **settings)
    assert re.search(words, said), said
    assert "dataset." in said


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.csv", "", "its first line is empty"),
        ("x.csv", "age,died\n", "has no rows"),
        ("x.csv", "age,died\n1,no\n2\n", "Expected 2 columns, got 1"),
        ("x.csv", "age,died\n1,no,3\n", "Expected 2 columns, got 3"),
        ("x.csv", "age,age,died\n1,2,no\n", "two columns 'age'"),
        ("x.csv", b"age,died\n\xe9,no\n", "neither UTF-8 nor UTF-16"),
        ("x.csv", 'age,died\n"1,no\n2,no\n\x1b[2J', "can't be read"),
        ("x.parquet", "PAR1 or not", "can't be read"),
        ("x.npz", "PK or not", "no file of np.savez"),
        ("x.xlsx", "", "must end in .csv, .tsv, .parquet or .npz"),
    ],
)
def test_a_file_that_is_no_table(tmp_path: Path, name: str, content: Any, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = refused(path)
    assert words in said and said.isprintable()


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    assert "there is no such file" in refused(tmp_path / "b.csv")
    assert "there is no such file" in refused(tmp_path / "a.csv")
    with pytest.raises(InvalidSetting, match="name one that ends in"):
        tj.load_dataset("file")
    (tmp_path / "c.csv").symlink_to("/dev/zero")
    assert "a pipe or a device" in refused(tmp_path / "c.csv")


X = RNG.normal(size=(40, 2, 2)).astype(np.float32)
Y = np.resize(["cat", "dog"], 40)
WHO = np.resize([7, 12], 40)
ARRAYS = {"train_x": X[:30], "train_y": Y[:30], "test_x": X[30:], "test_y": Y[30:]}


def arrays(folder: Path, **changes: Any) -> Path:
    kept = {name: it for name, it in (ARRAYS | changes).items() if it is not None}
    np.savez(folder / "x.npz", **kept)
    return folder / "x.npz"


def test_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    data = loaded(arrays(tmp_path, train_who=WHO[:30]), label=None, client="who")
    np.testing.assert_array_equal(data.train_images, X[:30])
    np.testing.assert_array_equal(data.test_labels, np.resize([0, 1], 10))
    assert tj.distribute(data, 2, "natural").names == ("7", "12")
    undivided = loaded(arrays(tmp_path, test_x=None, test_y=None), label=None, test_share=0.5)
    assert 14 <= len(undivided.test_labels) <= 16


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_y": np.array(["a", None] * 15, object)}, "it holds Python objects"),
        ({"train_x": None}, "has no array 'train_x'"),
        ({"test_y": None}, "has no array 'test_y'"),
        ({"train_y": Y[:29]}, "as many of train_y as of train_x"),
        ({"train_x": np.where(np.arange(30) == 3, np.nan, X[:30].T).T}, "train_x must be finite"),
        ({"test_x": X[30:, :1]}, "test_x must have the shape of train_x"),
        ({"train_x": np.float32(3)}, "as many of train_"),
        ({"train_y": Y[:30, None], "test_y": Y[30:, None]}, "a class for each example"),
        ({"train_y": np.zeros(30), "test_y": np.zeros(10)}, "in all rows"),
    ],
)
def test_a_fault_of_arrays_is_told_in_a_sentence(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    said = refused(arrays(tmp_path, **changes), label=None)
    assert words in said and "dataset.path=" in said


def test_an_archive_that_swells_is_refused_unread(tmp_path: Path) -> None:
    path = arrays(tmp_path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ARRAYS:
            archive.writestr(f"{name}.npy", b"")
        for entry in archive.filelist:
            entry.file_size = 2**44  # as an archive may say whose contents are a few bytes
    assert "Memory is not enough" in refused(path, label=None)


FILE = ("dataset=file", "dataset.label=died", "dataset.train_size=null", "dataset.test_size=null")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["dataset.client=ward"], "The examples are of 4 clients .* set n_clients=4"),
        (["distribution=natural"], "the data set has none: name their column by dataset.client"),
        (["dataset.client=ward", "distribution=dirichlet"], "distribution=dirichlet has no effect"),
        (["dataset.test_size=500"], "dataset.test_size=500 is more than the 1. examples"),
        (["dataset.test_share=1"], "dataset.test_share must be above 0 and below 1"),
    ],
)
def test_settings_that_do_not_fit_the_file(settings: list[str], words: str, tmp_path: Path) -> None:
    said = refusal(*FILE, f"dataset.path={table(tmp_path)}", *settings)
    assert re.search(words, said), said


def test_a_changed_file_is_other_data_for_a_run_that_goes_on(tmp_path: Path) -> None:
    def inputs(**changes: Any) -> str:
        file = f"dataset.path={table(tmp_path, **changes)}"
        more = ("dataset.client=ward", "n_clients=4", "topology=complete")
        return arrays_hash(lay_out(config_of(*TINY, *FILE, file, *more)).federation.data)

    before = inputs()
    assert inputs() == before
    assert inputs(age=[AGE[0] + 1, *AGE[1:]]) != before


OWN = """
import numpy as np

def load():
    labels = np.resize([0, 1], 64)
    x = np.random.default_rng(0).normal(labels[:, None], 1, (64, 2))
    return x[:48], labels[:48], x[48:], labels[48:]

def three():
    return load()[:3]

def fails():
    raise OSError("the disk is gone")

def right_of_real(log_p, labels, real):
    return ((log_p.argmax(axis=1) == labels) * real).sum() / real.sum()
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lod", "has no function 'lod': did you mean load?"),
        rarely("three", "must give a tj.Dataset, or its arrays"),
        rarely("fails", "fails (OSError: the disk is gone)"),
    ],
)
def test_a_function_of_ones_own_file_that_gives_no_data(
    name: str, words: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    outcome = command(*TINY[2:], f"dataset=mine.py:{name}", "hydra.run.dir=here")
    assert outcome.code == 2 and words in outcome.error
    assert not Path("here").exists()


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_figures")
def test_a_run_of_a_file_whose_clients_have_names_and_tests_of_their_own(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    given = (
        *(one for one in TINY[3:] if not one.startswith(("n_clients", "distribution"))),
        *FILE,
        f"dataset.path={table(tmp_path, 'my table.csv')}",
        "dataset.client=ward",
        "dataset.test=own",
        "n_clients=4",
        "contribution.utility=mine.py:right_of_real",
        "hydra.run.dir=here",
    )
    outcome = command(*given)
    assert outcome.code == 0, outcome.err
    assert "my table.csv, natural, 4 clients" in outcome.out and "own test sets" in outcome.out
    assert "scores by client: " in outcome.out and "é" in outcome.out
    data = tj.load_run("here").data
    assert data.client_name.values.tolist() == ["9", "10", "b", "é"]
    assert data.examples.values.tolist() == [12] * 4 and data.attrs["test"] == "own"
    assert data.utility.values.tolist()[2] == "mine.py:right_of_real"
    np.testing.assert_allclose(data["mine.py:right_of_real"], data.accuracy, atol=1e-6)
    with pytest.raises(InvalidSetting, match="a file is run only where you name it yourself"):
        verify(Path("here"))
    (tmp_path / "mine.py").write_text(f"{OWN}\n")
    again = command(*given, "resume=auto")
    assert again.code == 2 and "another file in contribution.utility" in again.error


def test_own_files_are_named_with_their_hashes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    mine, file = f"{tmp_path}/mine.py", str(table(tmp_path))
    dataset = tj.DatasetConfig("file", path=file)
    utility = tj.Contribution(f"loss+{mine}:right_of_real")
    before = files_hash(tj.Config(dataset=dataset, contribution=utility))
    assert set(before) == {"dataset.path", f"contribution.utility={mine}:right_of_real"}
    (tmp_path / "mine.py").write_text(f"{OWN}\n")
    after = files_hash(tj.Config(dataset=dataset, contribution=utility))
    assert [before[name] == after[name] for name in sorted(before)] == [False, True]
    with pytest.raises(InvalidSetting, match="a file is run only where you name it yourself"):
        refuse_own_code(tmp_path, {"dataset.name": f"{mine}:load"})
    assert list(with_own_code(["dataset=a.py:f", "seed=1"])) == [
        *("dataset=file", "dataset.name=a.py:f", "seed=1")
    ]


def test_a_function_of_ones_own_file_gives_data(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    data = tj.load_dataset(tj.DatasetConfig(f"{tmp_path}/mine.py:load", test_size=None))
    assert (len(data.train_labels), len(data.test_labels)) == (48, 16)
    few = tj.DatasetConfig(f"{tmp_path}/mine.py:load", train_size=10, test_size=5)
    assert len(tj.load_dataset(few).train_labels) == 10


def test_settings_of_a_file_have_no_effect_on_other_data(tmp_path: Path) -> None:
    assert "dataset.label has no effect with dataset=synthetic" in refusal("dataset.label=died")
    npz = f"dataset.path={arrays(tmp_path)}"
    assert "an .npz file in dataset.path" in refusal("dataset=file", npz, "dataset.drop=[a]")
