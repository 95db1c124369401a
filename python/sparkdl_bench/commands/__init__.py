"""The commands of `sparkdl-bench`: one file each, which defines `command`."""
