from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allears.errors import DataError
from allears.files import digest, locked, read_json, write_json, write_yaml, writing, written, written_folder

HEAD = """
import os, shutil, signal, sys, time
from pathlib import Path
from allears import files
place = Path(sys.argv[1])
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(code: str, place: Path) -> None:
    """Run ``code`` on ``place`` in a process that ends by SIGKILL."""
    done = subprocess.run([sys.executable, "-c", HEAD + code, str(place)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with written(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_file_stays_as_it_was_when_the_block_raises(tmp_path: Path, kind: type[BaseException]) -> None:
    path = tmp_path / "file"
    for before in ([], ["file"]):
        with pytest.raises(kind), written(path) as file:  # noqa: PT012
            file.write(b"half")
            raise kind
        assert names(tmp_path) == before
        path.write_bytes(b"old")
    assert path.read_bytes() == b"old"


def test_a_file_stays_as_it_was_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    code = "with files.written(place) as file:\n    file.write(b'half')\n    file.flush()\n    die()"
    killed(code, path)
    assert not path.exists()
    path.write_bytes(b"old")
    killed(code, path)
    assert path.read_bytes() == b"old"
    with written(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_a_folder_appears_when_it_is_whole_and_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("one", "two"):
        with written_folder(path) as folder:
            (folder / "sub").mkdir()
            (folder / "sub" / name).write_text(name)
            assert not (path / "sub" / name).exists()
        assert names(path / "sub") == [name]
        assert names(tmp_path) == ["folder"]


def test_a_folder_stays_as_it_was_when_the_block_raises(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for before in ([], ["folder"]):
        with pytest.raises(ValueError, match="stop"), written_folder(path) as folder:  # noqa: PT012
            (folder / "half").touch()
            raise ValueError("stop")
        assert names(tmp_path) == before
        path.mkdir(exist_ok=True)
        (path / "old").touch()
    assert names(path) == ["old"]


@pytest.mark.parametrize(
    "code",
    [
        # in the block
        "with files.written_folder(place) as folder:\n    (folder / 'a').touch()\n    die()",
        # while the files are flushed
        "os.fsync = die\nwith files.written_folder(place) as folder:\n    (folder / 'a').touch()",
        # half-way through the removal of the old folder
        """
def half(folder, **_):
    if Path(folder).exists():
        (Path(folder) / "old 1").unlink(missing_ok=True)
        die()
files.shutil.rmtree = half
with files.written_folder(place) as folder:
    (folder / "new 1").touch()
    (folder / "new 2").touch()
die()""",
    ],
)
def test_a_folder_is_whole_or_absent_when_the_process_is_killed(tmp_path: Path, code: str) -> None:
    path = tmp_path / "folder"
    for before in ([], ["old 1", "old 2"]):
        for name in before:
            path.mkdir(exist_ok=True)
            (path / name).touch()
        killed(code, path)
        assert not path.exists() or names(path) in (before, ["new 1", "new 2"])
        with written_folder(path) as folder:
            (folder / "new").touch()
        assert names(path) == ["new"]
        assert names(tmp_path) == ["folder"]
        (path / "new").unlink()
        path.rmdir()


def test_a_folder_in_use_is_refused_and_free_when_its_holder_is_killed(tmp_path: Path) -> None:
    code = "with files.locked(place, 'training'):\n    print('held', flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", HEAD + code, str(tmp_path / "run")], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            refused = locked(tmp_path / "run", "training")
            with pytest.raises(DataError, match=r"run is in use: another process is training there"), refused:
                pass
            with locked(tmp_path / "other", "training"):
                pass
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    for _ in range(2):
        with locked(tmp_path / "run", "training"):
            pass


FULL = Path("/dev/full")
"""Where the system finds no space for anything."""


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named_with_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    for size in (1, 1 << 20):  # seen when it is flushed, or at once
        (tmp_path / "file.partial").symlink_to(FULL)
        with pytest.raises(DataError, match=r"/file cannot be written: No space left on device; free some space"):  # noqa: SIM117
            with written(path) as file:
                file.write(b"x" * size)
        assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"
    with pytest.raises(DataError, match=r"/folder cannot be written: No space left on device; free some space"):  # noqa: PT012, SIM117
        with written_folder(tmp_path / "folder") as folder:
            (folder / "part").symlink_to(FULL)
            (folder / "part").write_bytes(b"x")
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "Read-only file system; choose a place that you may write to"),
        (errno.EACCES, "Permission denied; choose a place that you may write to"),
        (errno.EDQUOT, "free some space there"),
    ],
)
def test_a_place_that_refuses_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def refuses(place: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(place))

    monkeypatch.setattr(Path, "mkdir", refuses)
    for block in (written(tmp_path / "x"), written_folder(tmp_path / "x"), locked(tmp_path / "x", "training")):
        with pytest.raises(DataError, match=rf"/x cannot be written: .*{remedy}"), block:
            pass


def test_a_folder_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for block in (written(tmp_path / "file" / "x"), locked(tmp_path / "file" / "x", "training")):
        with pytest.raises(DataError, match=r"/file/x cannot be written: .*; choose another place"), block:
            pass


def test_errors_of_other_files_and_of_connections_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), writing(tmp_path / "x"):
        (tmp_path / "other").read_bytes()
    with pytest.raises(BrokenPipeError), writing(tmp_path / "x"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"é": [1, 2.5, None, True], "b": {}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value
    assert "é" in (tmp_path / "x.json").read_text(encoding="utf-8")
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert read_json(tmp_path / "x.json") == value


@pytest.mark.parametrize("data", [None, b"", b'{"a": 1', b"\xff\xfe\xfa", b"nonsense"])
def test_missing_or_damaged_json_is_named(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "x.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(DataError, match=r"x\.json (does not exist|is not readable JSON: .*)\.$"):
        read_json(path)


def test_yaml_keeps_its_order(tmp_path: Path) -> None:
    import yaml

    write_yaml(tmp_path / "x.yaml", {"b": 1e-5, "a": ["ü"]})
    text = (tmp_path / "x.yaml").read_text(encoding="utf-8")
    assert text.index("b:") < text.index("a:")
    assert yaml.safe_load(text) == {"b": 1e-5, "a": ["ü"]}


def test_a_digest_knows_where_its_parts_end() -> None:
    different = [
        digest(),
        digest(""),
        digest("", ""),
        digest("ab"),
        digest("a", "b"),
        digest("", "ab"),
        digest("ab", ""),
        digest("b", "a"),
    ]
    assert len(set(different)) == len(different)
    assert digest("é", b"x") == digest("é".encode(), "x")
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in different)
