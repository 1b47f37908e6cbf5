"""The landing folder: where telemetry lies between the edge and the aggregation."""

from penstock.land.folder import LandedFile, LandingFolder

__all__ = ["LandedFile", "LandingFolder"]
