"""Whether a checkpoint and a store belong together.

The checkpoint knows which files the next batch has, the store what was merged: either without
the other would lose or double telemetry. Both carry the id of the job, and a checkpoint an id of
its own, under which the ledger keeps its batches.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.errors import JobError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.store.contract import MetricStore

__all__ = ["Identity", "identify"]

_FILE = "penstock-job.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """The job, and the checkpoint that it runs from."""

    job: str
    checkpoint: str


def identify(checkpoint: Path, store: MetricStore, *, adopt: bool = False) -> Identity:
    """Return who the job is; raise JobError if *checkpoint* and *store* do not match.

    With *adopt* a checkpoint that is new to the store is accepted: what the store has merged
    already is recognised by the names of the files.
    """
    known = _read(checkpoint)
    job = store.job()
    if known is None:
        return _begin(checkpoint, store, job, adopt=adopt)
    if job is None and not _has_progress(checkpoint):
        # Ended between the two halves of its beginning: nothing was merged yet.
        store.adopt_job(known.job)
        return known
    if job is None:
        raise JobError(
            f"the store {store.address} is new, but the checkpoint {checkpoint} belongs to the job "
            f"{known.job}, whose metrics are not here. Give the store of that job; or, to start "
            f"over, remove the checkpoint: files that are still in 'consumed' can be moved back"
        )
    if job != known.job:
        raise JobError(
            f"the checkpoint {checkpoint} belongs to the job {known.job}, the store "
            f"{store.address} to {job}. Give the two that belong together"
        )
    return known


def _begin(checkpoint: Path, store: MetricStore, job: str | None, *, adopt: bool) -> Identity:
    if _has_progress(checkpoint):
        raise JobError(
            f"{checkpoint} is a checkpoint that does not say which job it belongs to ({_FILE} is "
            "missing). Name another folder with --checkpoint, or remove this one"
        )
    if job is not None and not adopt:
        raise JobError(
            f"the store {store.address} belongs to the job {job}, but its checkpoint is not in "
            f"{checkpoint}. Give that folder with --checkpoint; if it is lost, add "
            "--new-checkpoint: files that were merged before are recognised, none counts twice"
        )
    identity = Identity(job or uuid.uuid4().hex, uuid.uuid4().hex)
    # The checkpoint first: one without progress may be given to a new store at any time.
    _write(checkpoint, identity)
    if job is None:
        store.adopt_job(identity.job)
    return identity


def _has_progress(checkpoint: Path) -> bool:
    return (checkpoint / "offsets").exists() or (checkpoint / "metadata").exists()


def _read(checkpoint: Path) -> Identity | None:
    path = checkpoint / _FILE
    try:
        return Identity(**json.loads(path.read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        raise JobError(
            f"{path} cannot be read ({error}); restore or remove {checkpoint}"
        ) from error


def _write(checkpoint: Path, identity: Identity) -> None:
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        whole = checkpoint / f".{_FILE}.tmp"
        whole.write_text(json.dumps(asdict(identity)) + "\n", "utf-8")
        whole.rename(checkpoint / _FILE)
    except OSError as error:
        raise JobError(
            f"the checkpoint folder {checkpoint} cannot be written: {error.strerror}; "
            "name another one with --checkpoint"
        ) from error
