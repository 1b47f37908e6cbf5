"""What all three signals have around their records: resources and scopes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.telemetry._attributes import Attributes
from penstock.telemetry._columns import flatten, present, spread, unique_messages
from penstock.telemetry._wire import read_messages, read_requests
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.telemetry._columns import Flags, Rows

__all__ = ["UNKNOWN_SERVICE", "Envelope", "Rejections", "Resources"]

UNKNOWN_SERVICE = "unknown_service"

# The fields of a request on the way to its records.
_PATHS = {
    Signal.SPANS: ("resource_spans", "scope_spans", "spans"),
    Signal.POINTS: ("resource_metrics", "scope_metrics", "metrics"),
    Signal.LOGS: ("resource_logs", "scope_logs", "log_records"),
}


class Rejections(Counter[str]):
    """How many records were rejected, by reason."""

    def usable(self, reasons: Mapping[str, Flags]) -> Flags | None:
        """Return which records none of *reasons* applies to, None for all; count the others.

        A record is counted once, for the first reason.
        """
        rejected = np.zeros(len(next(iter(reasons.values()))), dtype=np.bool_)
        for reason, flags in reasons.items():
            count = int((flags & ~rejected).sum())
            if count:
                self[reason] += count
                rejected |= flags
        return ~rejected if rejected.any() else None


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """The distinct resources of some requests."""

    service_name: pa.Array
    service_instance: pa.Array
    attributes: pa.MapArray

    @staticmethod
    def of(serialized: pa.Array) -> Resources:
        """Parse raw Resource messages."""
        attributes = Attributes.of(read_messages("Resource", serialized)["attributes"])
        return Resources(
            attributes.first_text(("service.name",), UNKNOWN_SERVICE),
            attributes.first_text(("service.instance.id", "host.name"), ""),
            attributes.maps(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """The *records* of some requests, with the resource and the scope of each."""

    records: pa.StructArray
    resources: Resources
    scope_names: pa.Array
    resource: Rows = field(repr=False)
    scope: Rows = field(repr=False)

    @staticmethod
    def of(signal: Signal, payloads: Sequence[bytes]) -> Envelope:
        """Open serialized requests."""
        to_resources, to_scopes, to_records = _PATHS[signal]
        parts, _ = flatten(read_requests(signal, payloads)[to_resources])
        resources, resource_of_part = unique_messages(parts.field("resource"))
        scopes, part_of_scope = flatten(parts.field(to_scopes))
        names, name_of_scope = unique_messages(scopes.field("scope"))
        records, scope_of_record = flatten(scopes.field(to_records))
        return Envelope(
            records,
            Resources.of(resources),
            present(read_messages("InstrumentationScope", names)["name"]),
            resource_of_part[part_of_scope[scope_of_record]],
            name_of_scope[scope_of_record],
        )

    def filtered(self, usable: Flags | None) -> Envelope:
        """Return the envelope with only the records that are usable."""
        if usable is None:
            return self
        return self.taken(np.flatnonzero(usable), self.records.filter(pa.array(usable)))

    def taken(self, rows: Rows, records: pa.StructArray) -> Envelope:
        """Return an envelope around *records*, which stem from *rows* of this one."""
        return replace(self, records=records, resource=self.resource[rows], scope=self.scope[rows])

    def columns(self) -> dict[str, pa.Array | pa.ChunkedArray]:
        """Return the columns that come from resource and scope."""
        resource = pa.array(self.resource)
        return {
            "service_name": self.resources.service_name.take(resource),
            "service_instance": self.resources.service_instance.take(resource),
            "scope_name": self.scope_names.take(pa.array(self.scope)),
            "resource_attributes": spread(self.resources.attributes, self.resource),
        }
