"""Python functions of the user's own as the ranks of one barrier stage: `sparkdl_bench.launch`.

`driver` starts and follows a launch, `record` keeps it, `display` shows it. `rank` runs in the Python worker of each
rank, with `places` (the variables that frameworks read), `capture` (what it prints), `groups` (the process group) and
`reporting` (what it tells). `job` is what travels from one side to the other.
"""
