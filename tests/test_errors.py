from sparkdl_bench.errors import ConfigurationError, RunCancelledError, RunFailedError, RunTimedOutError, SparkDLError


def test_exit_codes() -> None:
    assert ConfigurationError("x").exit_code == 2
    assert RunFailedError("x").exit_code == 1
    assert RunCancelledError("x").exit_code == 1
    assert RunTimedOutError("x", "y").exit_code == 1


def test_one_base_class_catches_all() -> None:
    for kind in (ConfigurationError, RunFailedError, RunCancelledError, RunTimedOutError):
        assert issubclass(kind, SparkDLError)


def test_who_catches_a_timeout_can_name_another_remedy() -> None:
    error = RunTimedOutError("It did not end.", "Wait.")
    assert str(error) == "It did not end. Wait."
    assert error.what == "It did not end."
