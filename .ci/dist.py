"""Build the wheel and the source distribution of a commit: `python .ci/dist.py FOLDER [COMMIT]`.

With the same Python and setuptools, the same commit gives the same bytes: files come from git, not from the working
tree, and carry the time of the commit, or of SOURCE_DATE_EPOCH. setuptools does so for wheels; its source distributions
have the times and users of the files, which are replaced here. The wheel is built from the source distribution, as
installers do.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def main() -> int:
    """Build both, and print their hashes."""
    folder, commit = Path(sys.argv[1]).resolve(), (*sys.argv[2:], "HEAD")[0]
    folder.mkdir(parents=True, exist_ok=True)
    for path in build(folder, commit):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")  # noqa: T201
    return 0


def build(folder: Path, commit: str) -> tuple[Path, Path]:
    """Write the source distribution and the wheel of a commit into a folder."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory() as scratch:
        source = _extracted(_git("archive", "--prefix=source/", commit), Path(scratch))
        raw = _built("build_sdist", source, Path(scratch), epoch)
        sdist = folder / raw.name
        sdist.write_bytes(reproducible(raw.read_bytes(), epoch))
        unpacked = _extracted(gzip.decompress(sdist.read_bytes()), Path(scratch) / "sdist")
        return sdist, _built("build_wheel", unpacked, folder, epoch)


def reproducible(packed: bytes, epoch: int) -> bytes:
    """Return a .tar.gz with sorted members that have one time, no user, and permissions that do not vary."""
    plain, made = io.BytesIO(), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.mtime = member.type, member.size, epoch
            clean.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(clean, old.extractfile(member) if member.isfile() else None)
    # Without a name and with a given time, the header of gzip does not vary either.
    with gzip.GzipFile(filename="", fileobj=made, mode="wb", compresslevel=9, mtime=epoch) as file:
        file.write(plain.getvalue())
    return made.getvalue()


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, check=True).stdout


def _extracted(archive: bytes, folder: Path) -> Path:
    """Extract an archive with one folder on its first level, and return that folder."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        top = tar.getmembers()[0].name.partition("/")[0]
        tar.extractall(folder, filter="data")
    return folder / top


def _built(hook: str, source: Path, folder: Path, epoch: int) -> Path:
    """Call a hook of the build backend in a source tree, as a frontend does, and return the file that it wrote."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _BUILD, hook, str(folder)]
    ran = subprocess.run(command, cwd=source, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return folder / ran.stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
