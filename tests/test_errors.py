from sparkdl_bench.errors import ConfigurationError, RunCancelledError, RunFailedError, SparkDLError


def test_exit_codes() -> None:
    assert ConfigurationError("x").exit_code == 2
    assert RunFailedError("x").exit_code == 1
    assert RunCancelledError("x").exit_code == 1


def test_one_base_class_catches_all() -> None:
    for kind in (ConfigurationError, RunFailedError, RunCancelledError):
        assert issubclass(kind, SparkDLError)
