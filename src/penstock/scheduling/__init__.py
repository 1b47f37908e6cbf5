"""Threads for drain work: how many, whose, and how a task is run and woken."""

from __future__ import annotations

from penstock.scheduling.policy import ThreadPolicy, available_cores
from penstock.scheduling.shared import SharedSchedulers
from penstock.scheduling.task import Scheduler, SchedulerFactory, Task, TaskState
from penstock.scheduling.threads import ThreadScheduler

__all__ = [
    "Scheduler",
    "SchedulerFactory",
    "SharedSchedulers",
    "Task",
    "TaskState",
    "ThreadPolicy",
    "ThreadScheduler",
    "available_cores",
]
