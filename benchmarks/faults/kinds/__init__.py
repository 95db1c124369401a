"""Kinds of faults: one file a kind or a small family, with its `KINDS`; found by scanning."""
