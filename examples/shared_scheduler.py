"""Three quiet I/O queues on the same few threads instead of threads of their own."""

import threading

from penstock import BatchQueueManager, presets
from penstock.testing import eventually

used_threads: set[str] = set()
sent: dict[str, int] = {"peer": 0, "traces": 0, "rows": 0}


def send(batch: list[str]) -> None:
    """Stand in for a network call; the batch says where it goes."""
    used_threads.add(threading.current_thread().name)
    sent[batch[0]] += len(batch)


def io_threads() -> list[str]:
    """Return the shared threads that are alive."""
    return [t.name for t in threading.enumerate() if t.name.startswith("penstock-io")]


queues = BatchQueueManager()
peer = queues.create("grpc.remote.a", presets.grpc_remote(send, 4, 100, shared=True))
traces = queues.create(presets.EXPORTER_KAFKA_TRACE, presets.exporter_kafka(send, shared=True))
rows = queues.create(presets.JDBC_BATCH, presets.jdbc_batch(send, shared=True))

for _ in range(100):
    peer.produce("peer")
    traces.produce("traces")
    rows.produce("rows")

eventually(lambda: sum(sent.values()) == 300)
shared = io_threads()
print("delivered:", sent)
print(f"three queues, {len(shared)} shared thread(s); used: {sorted(used_threads)}")
assert used_threads <= set(shared)

# The scheduler lives as long as one queue uses it.
queues.shutdown("grpc.remote.a")
queues.shutdown(presets.EXPORTER_KAFKA_TRACE)
rows.produce("rows")
eventually(lambda: sent["rows"] == 101)
print("two queues closed, the third still delivers:", sent["rows"], "rows")

queues.shutdown_all()
eventually(lambda: not io_threads())
print("the last queue took the threads with it")
