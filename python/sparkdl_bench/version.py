"""The version of the wheel and of its jars."""

__version__ = "0.1.0"
