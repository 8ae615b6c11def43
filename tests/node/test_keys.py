"""Private keys in files: made whole or not at all, one for all who ask, for nobody else's eyes."""

import base64
import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trip_node.cli.main import USAGE, main
from trip_node.node.signing import Signer, is_signed
from trip_node.settings.errors import InvalidSetting

POSIX = pytest.mark.skipif(os.name == "nt", reason="files have no modes")


def test_the_command_makes_a_key_and_shows_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ann.key"
    assert main(["key", str(path)]) == 0
    made, _ = capsys.readouterr()
    whole = path.read_bytes()
    assert main(["key", str(path)]) == 0
    assert capsys.readouterr().out == made and path.read_bytes() == whole
    signer = Signer.at(path)
    assert made == f"{signer.public}\n"
    signature = base64.b64decode(signer.sign(b"it"))
    assert is_signed(b"it", signature, base64.b64decode(made))
    assert not is_signed(b"is", signature, base64.b64decode(made))
    assert "trip-node key FILE" in USAGE
    assert Signer.at(tmp_path / "bob.key").public != signer.public
    assert sorted(one.name for one in tmp_path.iterdir()) == ["ann.key", "bob.key"]


@POSIX
@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o620, 0o602, 0o604, 0o660])
def test_a_key_that_others_may_read_or_write_is_refused(
    tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "an n.key"
    Signer.at(path)
    path.chmod(mode)
    said = rf"\(mode {mode:04o}\): run chmod 600 '.*an n\.key', or make a new key"
    with pytest.raises(InvalidSetting, match=said):
        Signer.at(path)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(InvalidSetting, match=r"run chmod 600 .*link, or make a new key"):
        Signer.at(tmp_path / "link")
    assert main(["key", str(path)]) == 2
    out, error = capsys.readouterr()
    assert not out and "chmod 600" in error and error.count("\n") == 1


@POSIX
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_key_of_its_owners_alone_is_taken_also_by_a_link(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "ann.key"
    public = Signer.at(path).public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(mode)
    (tmp_path / "link").symlink_to(path)
    assert Signer.at(tmp_path / "link").public == Signer.at(str(path)).public == public


def test_no_umask_opens_a_key_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Signer.at(tmp_path / "ann.key")
    finally:
        os.umask(before)
    assert os.name == "nt" or stat.S_IMODE((tmp_path / "ann.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"x", b"\xff\xfe\0", b"A" * 44, b"A" * 10**6, b"AAAA\n" * 9]
)
def test_a_file_without_a_key_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ann.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InvalidSetting, match=r"ann\.key is empty or damaged, .* restore it, or"):
        Signer.at(path)
    assert path.read_bytes() == content


def test_where_no_key_can_be_is_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "no" / "folder")
    places = [".", "file/key", "none/key", "loop", "nowhere", "a" * 300, "nul\0", ""]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe", 0o600)
        places.append("pipe")
    for name in places:
        assert main(["key", str(tmp_path / name) if name else ""]) == 2
        out, error = capsys.readouterr()
        assert not out and error.startswith("error: ") and error.count("\n") == 1, name
    assert main(["key"]) == 2 and main(["key", "a", "b"]) == 2


@pytest.mark.parametrize("failing", ["fsync", "link", "open", "fdopen"])
def test_what_fails_while_a_key_is_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, failing, fail)
        with pytest.raises(InvalidSetting, match="No space left on device"):
            Signer.at(tmp_path / "ann.key")
    assert not list(tmp_path.iterdir())
    Signer.at(tmp_path / "ann.key")


def test_a_full_disk_leaves_no_key(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(mounted, check=False).returncode:
        pytest.skip("a small file system is mounted by root alone, on Linux")
    try:
        with (small / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        with pytest.raises(InvalidSetting, match="No space left on device"):
            Signer.at(small / "ann.key")
        assert [one.name for one in small.iterdir()] == ["filler"]
        (small / "filler").unlink()
        assert Signer.at(small / "ann.key").public == Signer.at(small / "ann.key").public
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_all_who_start_at_once_get_one_key(tmp_path: Path) -> None:
    for k in range(20):
        with ThreadPoolExecutor(8) as threads:
            found = set(
                threads.map(lambda _, k=k: Signer.at(tmp_path / f"{k}.key").public, "x" * 8)
            )
        assert len(found) == 1
    assert len(list(tmp_path.iterdir())) == 20


def test_an_absent_package_is_told_before_a_key_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    listen = ["coordinate", "--listen", "127.0.0.1:0", "--state", "s", "--keys", "k"]
    for arguments in (["key", str(tmp_path / "ann.key")], listen):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "pip install" in said and "cryptography" in said
    with pytest.raises(InvalidSetting, match=r"need the package cryptography .* pip install"):
        Signer(b"a" * 32)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", [b"", b"a" * 31, b"a" * 33])
def test_a_key_has_32_bytes(key: bytes) -> None:
    with pytest.raises(InvalidSetting, match="A private key has 32 bytes"):
        Signer(key)
