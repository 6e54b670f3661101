"""Measurements of pwf beside a baseline from the same run. Nothing here is asserted; see docs/performance.md."""
