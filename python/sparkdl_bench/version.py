"""The version of the wheel and of the jars: the one place that states it (build.sbt and pyproject.toml read it)."""

__version__ = "0.1.0"
