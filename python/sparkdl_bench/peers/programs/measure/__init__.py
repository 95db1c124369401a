"""One program for each way of measuring: `python -m measure.x CASE.json OUT.jsonl`. Standard library and the peer's packages only."""
