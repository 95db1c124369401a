"""Comparisons: one file says what varies, every cell is trained several times, and every result is stored.

`plan` reads the file, `cells` makes the cells and their order, `store` holds the measurements, `execute` trains one
cell, `loop` all of them; `quick` does so within a number of minutes, `look` inspects somebody's data. The Python
interface is `sparkdl_bench.comparison_api`; the description for users is docs/reference/compare.md.
"""
