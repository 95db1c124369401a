"""Comparisons: one file says what varies, every cell of it is trained several times, and all that came out is kept.

`plan` reads the file, `cells` makes the cells and their order, `store` keeps what was measured, `execute` trains one
cell, `loop` all of them. docs/reference/compare.md is the description for users.
"""
