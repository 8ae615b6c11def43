"""Secrets in addresses, fields and the environment are masked before they are printed."""

import os
from pathlib import Path

import pytest

from tests.conftest import rarely
from trip_jax.settings.credentials import masked
from trip_jax.tracking import TRACKERS, Tracked


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at http://me:hunter2@host:1/x.", "at http://***@host:1/x."),
        ("postgresql+psycopg://me:hunter2@host/db", "postgresql+psycopg://***@host/db"),
        ("https://hunter2@host", "https://***@host"),
        ("http://me:hun@ter2/3@host/x", "http://***@host/x"),
        ("'http://me:hunter2@h' and 'http://you:hunter2@g'", "'http://***@h' and 'http://***@g'"),
        ("http://host/?token=hunter2&x=1", "http://host/?token=***&x=1"),
        ("http://host/?x=1&api_key=hunter2#y", "http://host/?x=1&api_key=***"),
        ("http://host/?X-Amz-Signature=a&sig=hunter2", "http://host/?X-Amz-Signature=a&sig=***"),
        ("host=h password=hunter2 user=me", "host=h password=*** user=me"),
        ("DRIVER=x;PWD=hunter2;UID=me", "DRIVER=x;PWD=***;UID=me"),
        ("{'access_token': 'hunter2'}", "{'access_token': '***'}"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer ***"),
        ("http://host:5000/a/b?x=1", "http://host:5000/a/b?x=1"),
        ("sqlite:////home/me@work/x.db", "sqlite:////home/me@work/x.db"),
        ("No space left on device: 'run/mlflow'", "No space left on device: 'run/mlflow'"),
    ],
)
def test_secrets_are_masked_and_all_else_stays(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        ("MLFLOW_TRACKING_PASSWORD", "hunter2 hunter2", "hunter2 hunter2"),
        ("WANDB_API_KEY", "hunter2hunter2", "hunter2hunter2"),
        ("MLFLOW_TRACKING_URI", "postgresql://me:hunter2 2@host/db", "hunter2 2"),
        ("MLFLOW_TRACKING_URI", "postgresql://me:hunter%402@host/db", "hunter@2"),
        ("HTTPS_PROXY", "http://me:hunter2@proxy:1", "hunter2"),
    ],
)
def test_what_the_environment_holds_is_masked_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, secret: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert "hunter" not in masked(f"FATAL: for user me with {secret}, refused: {value}")
    assert masked(f"in {os.getcwd()}") == f"in {os.getcwd()}"  # PWD is no password


@pytest.mark.parametrize(
    "address",
    ["postgresql://me:hunter2@127.0.0.1:1/x", rarely("http://me:hunter2@127.0.0.1:1")],
)
def test_mlflow_tells_no_password(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, address: str
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    for name in [one for one in os.environ if one.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with Tracked(TRACKERS["mlflow"](tmp_path), "mlflow") as tracked:
        tracked.start("run: x", {"seed": 0}, 0)
    said = "".join(capfd.readouterr())
    assert "track=mlflow failed" in said and "hunter2" not in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_tracker_of_ones_own_tells_no_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Fails:
        def start(self, *_: object) -> None:
            raise ConnectionError("x" * 190 + " http://me:hunter2hunter2@host is away")

        round = end = start

    with Tracked(Fails(), "own") as tracked:
        tracked.start("run: x", {}, 0)
    assert "hunter" not in capsys.readouterr().out
