"""One program for each way of measuring: `python -m measure.x CASE.json OUT.jsonl`.

They import the standard library and their peer's own packages only.
"""
