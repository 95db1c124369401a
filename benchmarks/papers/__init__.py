"""The published comparisons, run again: what the papers say, and what is measured here, side by side."""
