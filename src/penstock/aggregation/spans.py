"""Spans as rows of the sources, by the semantic conventions of docs/reference/conventions.md."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.columns import Flags, Numbers, Rows, Texts
from penstock.telemetry.schema import PROMOTED, SpanKind, StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = ["CACHES", "Column", "Selection", "SpanFrame", "cache_operation"]

Column: TypeAlias = "Texts | Numbers | Flags"

NS_PER_MS = 1_000_000
NS_PER_MINUTE = 60_000_000_000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CACHES = _words("redis valkey memcached keydb dragonfly garnet hazelcast infinispan aerospike")
_READS = _words(
    """
    GET GETS MGET GETRANGE GETBIT STRLEN EXISTS TTL PTTL TYPE KEYS SCAN HGET HMGET HGETALL HEXISTS
    HKEYS HVALS HLEN HSCAN LRANGE LINDEX LLEN SMEMBERS SISMEMBER SCARD SSCAN SRANDMEMBER ZRANGE
    ZREVRANGE ZRANGEBYSCORE ZSCORE ZRANK ZCARD ZCOUNT XRANGE XREAD XLEN
    """
)
_WRITES = _words(
    """
    SET SETEX SETNX PSETEX MSET MSETNX GETSET GETDEL APPEND ADD REPLACE PREPEND CAS TOUCH DELETE
    DEL UNLINK EXPIRE PEXPIRE EXPIREAT PERSIST INCR INCRBY INCRBYFLOAT DECR DECRBY SETRANGE SETBIT
    HSET HMSET HSETNX HDEL HINCRBY HINCRBYFLOAT LPUSH RPUSH LPOP RPOP LREM LSET LTRIM LINSERT SADD
    SREM SPOP SMOVE ZADD ZREM ZINCRBY ZPOPMIN ZPOPMAX XADD XDEL XTRIM RENAME FLUSHDB FLUSHALL
    """
)
_PRODUCING = frozenset({"send", "publish", "create"})
_CONSUMING = frozenset({"receive", "process", "deliver", "settle"})


def cache_operation(command: str) -> str:
    """Return what a cache's command does: Read, Write or Others."""
    if command in _READS:
        return "Read"
    return "Write" if command in _WRITES else "Others"


class SpanFrame:
    """A batch of spans and everything that is derived from single spans, computed when asked."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._texts: dict[str, Texts] = {}
        self._tags: dict[str, Texts] = {}
        self.rows: int = batch.num_rows

    def array(self, name: str) -> pa.Array:
        """Return a column as it came."""
        return self._batch.column(name)

    def text(self, name: str) -> Texts:
        """Return a column of texts."""
        if name not in self._texts:
            self._texts[name] = Texts.of(self.array(name))
        return self._texts[name]

    def number(self, name: str) -> Numbers:
        """Return a column of numbers."""
        return Numbers.of(self.array(name))

    def tag(self, key: str) -> Texts:
        """Return an attribute of the spans as texts."""
        if key not in self._tags:
            self._tags[key] = self._looked_up(key)
        return self._tags[key]

    def _looked_up(self, key: str) -> Texts:
        column = PROMOTED.get(key)
        if column is None:
            found = pc.map_lookup(self.array("attributes"), key, "first")
            return Texts.of(found)
        array = self.array(column)
        if pa.types.is_integer(array.type):
            return Texts.of(array.cast(pa.string()))
        return self.text(column)

    @cached_property
    def minute(self) -> NDArray[np.int64]:
        """Minutes since 1970 of the spans' starts."""
        return np.asarray(self.number("start_ns").values // NS_PER_MINUTE, dtype=np.int64)

    @cached_property
    def latency(self) -> Numbers:
        """Whole milliseconds from start to end, never negative."""
        start, end = self.number("start_ns").values, self.number("end_ns").values
        # Not below 0 before the subtraction: an end far before 1970 would overflow.
        return Numbers((np.maximum(end, start) - start) // NS_PER_MS)

    @cached_property
    def status(self) -> Flags:
        """Whether the span did not end with an error."""
        return np.asarray(self.number("status_code").values != StatusCode.ERROR)

    @cached_property
    def kind(self) -> NDArray[np.int8]:
        """OTLP's number of the span's kind."""
        return self.number("kind").values

    @cached_property
    def is_incoming(self) -> Flags:
        """Whether the span is about being called."""
        return np.asarray((self.kind == SpanKind.SERVER) | (self.kind == SpanKind.CONSUMER))

    @cached_property
    def is_outgoing(self) -> Flags:
        """Whether the span is about calling."""
        return np.asarray((self.kind == SpanKind.CLIENT) | (self.kind == SpanKind.PRODUCER))

    @cached_property
    def called_instance(self) -> Texts:
        """The instance that an outgoing call went to."""
        return first_present(self.text("peer_instance"), self.address)

    @cached_property
    def calling_instance(self) -> Texts:
        """The instance that an incoming call came from."""
        return first_present(self.text("peer_instance"), self.text("client_address"))

    @cached_property
    def accessed(self) -> Texts:
        """The database or cache that was spoken to."""
        return first_present(self.peer, self.text("db_system"))

    @cached_property
    def broker(self) -> Texts:
        """The broker that messages went through."""
        return first_present(self.peer, self.text("messaging_system"))

    @cached_property
    def type(self) -> Texts:
        """RequestType of the span."""

        def name(messaging: str | None, rpc: str | None, db: str | None, http: str | None) -> str:
            if messaging:
                return "MQ"
            if rpc:
                return "gRPC" if rpc == "grpc" else "RPC"
            return "DATABASE" if db else "HTTP" if http else "RPC"

        columns = ("messaging_system", "rpc_system", "db_system")
        return Texts.joined(name, *(self.text(column) for column in columns), self._http)

    @cached_property
    def _http(self) -> Texts:
        present = self.text("http_method").is_valid() | self.text("http_route").is_valid()
        return Texts(np.where(present, np.int32(0), np.int32(-1)), ("http",))

    @cached_property
    def endpoint(self) -> Texts:
        """The name of what was called."""

        def http(method: str | None, route: str | None) -> str | None:
            return f"{method} {route}" if method and route else route

        def rpc(service: str | None, method: str | None) -> str | None:
            return f"{service}/{method}" if service and method else None

        return first_present(
            Texts.joined(http, self.text("http_method"), self.text("http_route")),
            Texts.joined(rpc, self.text("rpc_service"), self.text("rpc_method")),
            self.text("messaging_destination"),
            self.text("name"),
        )

    @cached_property
    def address(self) -> Texts:
        """Host and port of the other side, as far as known."""

        def build(host: str | None, port: str | None) -> str | None:
            return f"{host}:{port}" if host and port else host

        return Texts.joined(build, self.text("server_address"), self.tag("server.port"))

    @cached_property
    def peer(self) -> Texts:
        """The other side of an outgoing call."""
        return first_present(self.text("peer_service"), self.address)

    @cached_property
    def command(self) -> Texts:
        """The command given to a cache, in upper case."""

        def build(operation: str | None, statement: str | None) -> str | None:
            if operation:
                return operation.upper()
            words = (statement or "").split(maxsplit=1)
            return words[0].upper() if words else None

        # Without the statements of databases, which are many and have nothing to do with it.
        statements = self.text("db_statement")
        codes = np.where(self.is_cache, statements.codes, np.int32(-1))
        return Texts.joined(build, self.text("db_operation"), Texts(codes, statements.values))

    @cached_property
    def is_cache(self) -> Flags:
        """Whether the span speaks to a cache."""
        return self.text("db_system").where(lambda system: system.lower() in CACHES)

    @cached_property
    def mq_operation(self) -> Texts:
        """Produce or Consume; null for spans that do neither."""
        operation = self.text("messaging_operation")
        client = self.kind == SpanKind.CLIENT
        produces = (self.kind == SpanKind.PRODUCER) | (
            client & operation.where(_PRODUCING.__contains__)
        )
        consumes = (self.kind == SpanKind.CONSUMER) | (
            client & operation.where(_CONSUMING.__contains__)
        )
        codes = np.where(produces, np.int32(0), np.where(consumes, np.int32(1), np.int32(-1)))
        return Texts(codes, ("Produce", "Consume"))


class Selection:
    """Some rows of a frame that are rows of a source: where each of its attributes is found.

    Selections over the same rows share what they have taken from the frame.
    """

    def __init__(
        self,
        frame: SpanFrame,
        rows: Rows,
        attributes: Mapping[str, Callable[[], Column]],
    ) -> None:
        self.frame = frame
        self.rows = rows
        self._attributes = attributes
        self._taken: dict[str, Column] = {}
        self._tags: dict[str, Texts] = {}

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    @cached_property
    def minute(self) -> NDArray[np.int64]:
        """The rows' minutes."""
        return self.frame.minute[self.rows]

    def attribute(self, name: str) -> Column:
        """Return an attribute of the source for the rows."""
        if name not in self._taken:
            column = self._attributes[name]()
            taken = column[self.rows] if isinstance(column, np.ndarray) else column.take(self.rows)
            self._taken[name] = taken
        return self._taken[name]

    def tag(self, key: str) -> Texts:
        """Return an attribute of the spans for the rows."""
        if key not in self._tags:
            self._tags[key] = self.frame.tag(key).take(self.rows)
        return self._tags[key]


def first_present(*columns: Texts) -> Texts:
    """Return for each row the first of its texts that is present."""
    chosen = columns[-1]
    for column in reversed(columns[:-1]):
        values = [*column.values, *chosen.values]
        moved = np.where(chosen.codes >= 0, chosen.codes + np.int32(len(column.values)), -1)
        codes = np.where(column.codes >= 0, column.codes, moved).astype(np.int32)
        chosen = Texts(codes, values)
    # Columns may share values, and equal texts must have one code.
    return chosen.mapped(lambda value: value)
