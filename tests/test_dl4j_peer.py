"""DL4J's peers before they run: what they refuse, and what their environment is made of. They run by `make peers`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from sparkdl_bench import jars, peers
from sparkdl_bench.errors import ConfigurationError
from sparkdl_bench.jars import Coordinates, FetchFailedError
from sparkdl_bench.peers import FitCase, _dl4j
from sparkdl_bench.peers._environment import Environment
from sparkdl_bench.peers.programs.measure import dl4j_fit


def case(*kinds: str, workers: int = 2, **optimizer: str) -> FitCase:
    layers = [{"name": f"l{at}", "kind": kind} for at, kind in enumerate(kinds)]
    made = FitCase("rows.npz", specification=json.dumps({"layers": layers}), workers=workers)
    return replace(made, optimizer={"name": "sgd", **optimizer})


@pytest.mark.parametrize("name", ["dl4j-averaging", "dl4j-shared"])
def test_a_perceptron_is_taken_and_every_other_chain_is_not(name: str) -> None:
    peer = peers.find(name)
    peer.check(case("flatten", "linear", "relu", "linear"))
    peer.check(case("linear", "tanh", "linear", "sigmoid", "linear"))
    for kinds in (("linear", "relu", "linear", "sigmoid"), ("linear", "linear", "relu", "linear"), ("relu", "linear")):
        with pytest.raises(ConfigurationError, match="an activation between each two of them, and the model has"):
            peer.check(case(*kinds))
    with pytest.raises(ConfigurationError, match="a batch of 128 is no multiple of 3 workers"):
        peer.check(case("linear", workers=3))


def test_momentum_is_nesterovs() -> None:
    peer = peers.find("dl4j-averaging")
    peer.check(case("linear", momentum="0.9", nesterov="true"))
    peer.check(case("linear", name="adam"))
    with pytest.raises(ConfigurationError, match="has Nesterov's momentum alone"):
        peer.check(case("linear", momentum="0.9"))


def test_the_driver_averages_over_the_workers(tmp_path: Path) -> None:
    """Not over as many as a batch has rows: DL4J's builder takes the workers, then the rows of each record."""
    context = MagicMock()
    dl4j_fit._Dl4j(context, tmp_path).averaging(3, 64)
    context._jvm.org.deeplearning4j.spark.impl.paramavg.ParameterAveragingTrainingMaster.Builder.assert_called_with(
        3, 64
    )


def test_it_needs_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peer = peers.find("dl4j-averaging")
    if peer.unable():
        pytest.skip(str(peer.unable()))
    monkeypatch.setattr(_dl4j, "_compiler", lambda: tmp_path / "javac")
    assert "a JRE without javac" in str(peer.unable())


def test_jars_are_part_of_an_environment() -> None:
    plain = Environment("e", ("a==1",), ("b==2",))
    jarred = replace(plain, jars=("g:n:1",), jars_without=("org.x",))
    assert jarred.all_requirements == ("a==1", "b==2", "g:n:1")
    digests = {
        each._digest() for each in (plain, jarred, replace(jarred, jars=("g:n:2",)), replace(jarred, jars_without=()))
    }
    assert len(digests) == 4


def test_what_ivy_is_asked_for() -> None:
    wanted = [Coordinates("g", "n", "1"), Coordinates("g", "n", "1", "linux"), Coordinates("g", "m", "2")]
    text = jars._closure(wanted, ["org.apache.spark"])
    assert text.count("<dependency ") == 2
    assert text.count('conf="default->default"') == 2
    assert 'transitive="false"' not in text
    assert '<artifact name="n" type="jar" ext="jar" m:classifier="linux"/>' in text
    assert '<exclude org="org.apache.spark"/>' in text


def test_jars_that_do_not_arrive_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = [Coordinates("g", "n", "1")]

    def ivy(brought: list[str], failure: str | None) -> None:
        def asked(_descriptor: str, _room: Path, arrived: Path) -> str | None:
            arrived.mkdir()
            for name in brought:
                (arrived / name).write_bytes(b"jar")
            return failure

        monkeypatch.setattr(jars, "_ask_ivy", asked)

    ivy(["n-1.jar", "more-2.jar"], None)
    jars.resolve(wanted, [], tmp_path / "whole")
    assert {each.name for each in (tmp_path / "whole").iterdir()} == {"n-1.jar", "more-2.jar"}
    for brought, failure, said in (
        (["more-2.jar"], None, "brought no g:n:1"),
        (["n-1.jar"], "no network", "no network"),
    ):
        ivy(brought, failure)
        with pytest.raises(FetchFailedError, match=said):
            jars.resolve(wanted, [], tmp_path / "half")
        assert not (tmp_path / "half").exists()
