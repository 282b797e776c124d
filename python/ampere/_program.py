"""Calls of the program `ampere`, which is installed with this package and does all the work."""

from __future__ import annotations

import os
import shutil


class Error(Exception):
    """What could not be done, and why, in one line."""


def program() -> str:
    """Returns the path of the program: where this package was installed from its wheel, else on the PATH."""
    import importlib.metadata as metadata

    try:
        files = metadata.files("ampere-energy") or []
    except metadata.PackageNotFoundError:
        files = []
    # `pip install --target` records another place than the one that it writes to.
    places = [str(file.locate()) for file in files if file.parts[-2:] == ("bin", "ampere")]
    places.append(os.path.join(os.path.dirname(__file__), "..", "bin", "ampere"))
    found = next((place for place in places if os.access(place, os.X_OK)), None) or shutil.which("ampere")
    if not found:
        raise Error("no program ampere: install the wheel with pip, or put ampere on the PATH")
    return found


def ampere(*words: str) -> None:
    """Runs the program with these arguments, which name the files for its results. Its error message becomes an `Error`."""
    import subprocess

    done = subprocess.run(
        [program(), *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        # Notes come before the error, whose line has one of these prefixes. Lines without a prefix explain the usage.
        reasons = [line for line in lines if line.startswith(("ampere: ", "error: "))] or lines[-1:]
        reason = reasons[-1] if reasons else f"ampere {words[0]} ended with status {done.returncode}"
        raise Error(reason.split(": ", 1)[-1])
