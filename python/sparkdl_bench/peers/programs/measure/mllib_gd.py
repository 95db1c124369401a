"""See `mllib_fit`; with the solver gd."""

from .mllib_fit import train

if __name__ == "__main__":
    train("gd")
