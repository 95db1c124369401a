"""Reports: `load` reads results, `analysis` makes numbers of them, `words` sentences, `plots` pictures, `html` a page.

`formats` writes the other forms. docs/reference/compare.md is the description for users.
"""
