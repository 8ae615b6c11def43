"""Secrets in addresses, fields and the environment are masked before they are printed."""

import os
from pathlib import Path

import pytest

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
        ("http://h/?X-Amz-Date=1&sig=hunter2", "http://h/?X-Amz-Date=1&sig=***"),
        ("{'X-Goog-Signature': 'hunter2'}", "{'X-Goog-Signature': '***'}"),
        ("AccountName=me;AccountKey=hunter/2==;X=1", "AccountName=me;AccountKey=***;X=1"),
        ("X-API-Key: hunter2", "X-API-Key: ***"),
        ("no signature: (a, b) has a key: 1", "no signature: (a, b) has a key: 1"),
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


SECRET = """X-Amz-Signature X-Goog-Signature x-oss-signature Signature SharedAccessSignature sig
X-Amz-Credential X-Goog-Credential X-Amz-Security-Token token access_token id_token sas auth jwt
key api_key api-key apikey access_key AWSAccessKeyId subscription-key client_secret password pwd
X-Amz-Server-Side-Encryption-Customer-Key code session pass db_pass x-sig"""
PLAIN = """X-Amz-Algorithm X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders x keyword monkey sort_key
error_code design assigned author passes signatures_seen"""


@pytest.mark.parametrize("name", SECRET.split())
def test_a_parameter_of_an_address_that_holds_a_secret_is_masked(name: str) -> None:
    for before, after in (("?", ""), ("?x=1&", "&y=2"), ("?x=1;", " is away"), ("#", "")):
        address = f"https://host/run{before}{name}={{}}{after}"
        assert masked(address.format("hunter/2+3%3D==")) == address.format("***")


@pytest.mark.parametrize("name", PLAIN.split())
def test_other_parameters_stay(name: str) -> None:
    address = f"https://host/run?{name}=1&y=2 and {name}=1"
    assert masked(address) == address


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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "address",
    ["postgresql://me:hunter2@127.0.0.1:1/x", "http://me:hunter2@127.0.0.1:1"],
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
