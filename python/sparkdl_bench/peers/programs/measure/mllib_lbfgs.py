"""See `mllib_fit`; with the solver l-bfgs."""

from .mllib_fit import train

if __name__ == "__main__":
    train("l-bfgs")
