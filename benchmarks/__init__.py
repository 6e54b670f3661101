"""Measurements of pwf beside its physical limits and its peers. Nothing here is asserted; see docs/performance.md."""
