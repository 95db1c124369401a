"""Comparison files and the cells that they make."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import fakes
import numpy as np
import pytest

import idx
from conftest import COMPARISON_FILES
from sparkdl_bench.comparison import peer_data
from sparkdl_bench.comparison.cells import NOT_VARIED, cells_of, in_order, only
from sparkdl_bench.comparison.peer_case import fit_case
from sparkdl_bench.comparison.plan import Plan, Variant, load_plan
from sparkdl_bench.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]


def test_cells_are_variants_times_the_matrix_times_trials(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cells = cells_of(plan)
    assert len(cells) == 2 * 2 * 3
    assert len({cell.id for cell in cells}) == 12
    assert {cell.group for cell in cells} == {"fast, batch 32", "fast, batch 64", "slow, batch 32", "slow, batch 64"}
    one = next(cell for cell in cells if cell.group == "fast, batch 64")
    assert one.run.settings["transport"] == "block-stream"
    assert one.run.settings["batch"] == "64"
    assert one.run.spark["spark.master"] == "local-cluster[2,1,1024]"


def test_the_order_is_shuffled_and_the_seed_s(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path)
    cells = cells_of(plan)
    first, again = in_order(plan, cells), in_order(plan, list(cells))
    assert first == again
    assert first != cells
    assert sorted(cell.id for cell in first) == sorted(cell.id for cell in cells)
    other = load_plan(fakes.write_conf(tmp_path, "seed = 2\n" + fakes.CONF))
    assert in_order(other, cells_of(other)) != first


def test_only_some_values_of_what_varies(tmp_path: Path) -> None:
    cells = cells_of(fakes.plan_of(tmp_path))
    assert {cell.group for cell in only(cells, ["variant=fast"])} == {"fast, batch 32", "fast, batch 64"}
    assert {cell.group for cell in only(cells, ["variant=fast", "batch=32"])} == {"fast, batch 32"}
    assert len(only(cells, ["batch=32", "batch = 64"])) == len(cells)
    assert only(cells, []) == cells


def test_a_factor_that_does_not_apply_leaves_a_cell_in(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", 'batch = [32, 64]\ncodec = ["fp32", "bf16"]')
    conf += '\n[[variant]]\nname = "one process"\npeer = "pytorch"\nset = { workers = 1 }\n'
    left = only(cells_of(fakes.plan_of(tmp_path, conf)), ["codec=bf16", "batch=32"])
    assert {cell.group for cell in left} == {
        "fast, batch 32, codec bf16",
        "slow, batch 32, codec bf16",
        "one process, batch 32",
    }


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (["batch"], "FACTOR=VALUE, of a factor that varies: variant, batch"),
        (["epochs=3"], "FACTOR=VALUE, of a factor that varies: variant, batch"),
        (["batch=33"], "Valid: 32, 64"),
        (["variant=fsat"], "Did you mean 'fast'?"),
    ],
)
def test_what_cannot_be_picked_says_what_can(tmp_path: Path, wanted: list[str], reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        only(cells_of(fakes.plan_of(tmp_path)), wanted)
    assert reason in str(refused.value)


def test_values_that_no_cell_has_together_are_refused(tmp_path: Path) -> None:
    conf = 'skip = [{ variant = "fast", batch = 32 }]\n' + fakes.CONF
    cells = cells_of(fakes.plan_of(tmp_path, conf))
    with pytest.raises(ConfigurationError, match="leaves no run: none has variant fast and batch 32"):
        only(cells, ["variant=fast", "batch=32"])


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_group_has_had_a_trial_before_any_has_its_next(tmp_path: Path, seed: int) -> None:
    plan = load_plan(fakes.write_conf(tmp_path, f"seed = {seed}\n" + fakes.CONF))
    ordered = in_order(plan, cells_of(plan))
    assert [cell.trial for cell in ordered] == [1] * 4 + [2] * 4 + [3] * 4
    rounds = [[cell.group for cell in ordered if cell.trial == trial] for trial in (1, 2, 3)]
    assert all(sorted(groups) == sorted(rounds[0]) for groups in rounds)
    assert rounds != [rounds[0]] * 3, "the order within a round is one of chance"


def test_warm_up_comes_first_and_is_apart(tmp_path: Path) -> None:
    plan = fakes.plan_of(tmp_path, "warmup_trials = 1\n" + fakes.CONF)
    ordered = in_order(plan, cells_of(plan))
    assert [cell.is_warmup for cell in ordered] == [True] * 4 + [False] * 12


def test_shared_applications_stay_together_and_warm_up_in_each(tmp_path: Path) -> None:
    conf = "fresh = false\n" + fakes.CONF.replace("batch = [32, 64]", "workers = [1, 2]")
    plan = fakes.plan_of(tmp_path, conf)
    ordered = in_order(plan, cells_of(plan))
    applications = [cell.application for cell in ordered]
    changes = sum(1 for one, two in pairwise(applications) if one != two)
    assert changes == 1
    assert plan.warmup_trials == 1
    for application in set(applications):
        inside = [cell.is_warmup for cell in ordered if cell.application == application]
        assert inside == sorted(inside, reverse=True)


def test_what_a_variant_sets_itself_does_not_vary_it(tmp_path: Path) -> None:
    conf = fakes.CONF + '\n[[variant]]\nname = "fixed"\nset = { batch = 128 }\n'
    cells = cells_of(fakes.plan_of(tmp_path, conf))
    fixed = [cell for cell in cells if cell.factors["variant"] == "fixed"]
    assert len(fixed) == 3
    assert {cell.run.settings["batch"] for cell in fixed} == {"128"}


def test_a_peer_varies_only_over_what_it_knows(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", 'codec = ["fp32", "bf16"]')
    conf += '\n[[variant]]\nname = "ddp"\npeer = "pytorch-ddp"\n'
    cells = [cell for cell in cells_of(fakes.plan_of(tmp_path, conf)) if cell.peer]
    assert len(cells) == 3
    assert cells[0].factors == {"variant": "ddp", "codec": NOT_VARIED}
    assert cells[0].group == "ddp"


def test_a_seed_for_each_trial(tmp_path: Path) -> None:
    base = fakes.plan_of(tmp_path).base.settings.get("seed", "0")
    cells = cells_of(fakes.plan_of(tmp_path, "seed_per_trial = true\nwarmup_trials = 1\n" + fakes.CONF))
    seeds = {cell.trial: int(cell.run.settings["seed"]) - int(base) for cell in cells}
    assert seeds == {0: 0, 1: 0, 2: 1, 3: 2}
    assert {cell.run.settings.get("seed", "0") for cell in cells_of(fakes.plan_of(tmp_path))} == {base}
    # From the run's own seed on.
    own = load_plan(fakes.write_conf(tmp_path, "seed_per_trial = true\n" + fakes.CONF), ["seed=3"])
    assert {cell.trial: cell.run.settings["seed"] for cell in cells_of(own)} == {1: "3", 2: "4", 3: "5"}


def test_skip_leaves_out(tmp_path: Path) -> None:
    conf = 'skip = [{ variant = "slow", batch = 64 }]\n' + fakes.CONF
    groups = {cell.group for cell in cells_of(fakes.plan_of(tmp_path, conf))}
    assert groups == {"fast, batch 32", "fast, batch 64", "slow, batch 32"}


def test_places_are_filled_from_the_cell(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", "workers = [1, 4]")
    masters = {cell.run.spark["spark.master"] for cell in cells_of(fakes.plan_of(tmp_path, conf))}
    assert masters == {"local-cluster[1,1,1024]", "local-cluster[4,1,1024]"}
    wrong = fakes.write_conf(tmp_path, fakes.CONF, fakes.BASE.replace("{workers}", "{nothing}"))
    with pytest.raises(ConfigurationError, match="no key 'nothing'"):
        cells_of(load_plan(wrong))


def test_a_place_whose_key_is_mistyped_names_the_mistyped_key(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", "wokers = [1, 2]")
    wrong = fakes.write_conf(tmp_path, conf, fakes.BASE.replace("workers = 2\n", ""))
    with pytest.raises(ConfigurationError, match=r"^Unknown configuration key 'wokers'\. Did you mean 'workers'\?"):
        cells_of(load_plan(wrong))


def test_another_base_takes_the_place_of_the_file_s(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(fakes.BASE.replace("epochs = 3", "epochs = 7"))
    plan = load_plan(fakes.write_conf(tmp_path), base=other)
    assert plan.base.settings["epochs"] == "7"
    without = fakes.write_conf(tmp_path, fakes.CONF.replace('base = "base.toml"', ""))
    assert load_plan(without, base=other).base.settings["epochs"] == "7"


def test_a_folder_of_data_alone_means_idx(tmp_path: Path) -> None:
    plan = load_plan(fakes.write_conf(tmp_path), ["data.path=/some/where"])
    assert plan.base.settings["data.source"] == "idx"
    plan = load_plan(fakes.write_conf(tmp_path), ["data.path=/some/where", "data.source=other"])
    assert plan.base.settings["data.source"] == "other"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("trials = 3", "trials = 0"), "trials = 0"),
        (("trials = 3", "trials = true"), "type int"),
        (("trials = 3", "tirals = 3"), "tirals"),
        (('base = "base.toml"', ""), "no 'base'"),
        (("target_accuracy = 0.9", "target_accuracy = 95"), "target_accuracy = 95"),
        (("batch = [32, 64]", "batch = 32"), "list of the values"),
        (("batch = [32, 64]", "batch = [32, 32]"), "names a value twice"),
        (('variant = "slow"', 'variant = "slwo"'), "not one of its values: fast, slow"),
        (('variant = "slow"', 'codec = "fp32"'), "does not vary"),
        (('name = "slow"', 'name = "fast"'), "one name"),
        (('name = "slow"', 'nmae = "slow"'), "needs a name"),
        (('set = { transport = "block-manager" }', 'transport = "block-manager"'), "valid: name, peer, tuned, set"),
    ],
)
def test_what_no_comparison_can_have_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    conf = fakes.CONF.replace(*change)
    assert conf != fakes.CONF
    with pytest.raises(ConfigurationError, match=said):
        load_plan(fakes.write_conf(tmp_path, conf))


def test_a_run_file_is_no_comparison(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("workers = 2\n[model]\nname = 'mlp'\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        load_plan(path)
    assert str(refused.value) == (
        f"The comparison file '{path}' is a run file: it says how to train, and not what to compare. Train it with "
        '`sparkdl-bench run`; or write a comparison file, with base = "that-file.toml" and a table [matrix] such as '
        "workers = [1, 2], and give that one (docs/reference/compare.md)."
    )


def test_what_a_file_does_not_say_is_what_a_plan_has_by_itself(tmp_path: Path) -> None:
    loaded = load_plan(fakes.write_conf(tmp_path, 'base = "base.toml"\n[matrix]\nbatch = [32, 64]\n'))
    assert loaded == Plan("test", "test", loaded.base, (Variant(""),), {"batch": ("32", "64")})
    assert (loaded.trials, loaded.warmup_trials, loaded.warmup_steps, loaded.timeout_s) == (5, 0, 100, 900.0)
    assert (loaded.seed, loaded.seed_per_trial, loaded.fresh) == (1, False, True)
    assert (loaded.target_accuracy, loaded.price_per_core_hour, loaded.currency) == (None, 0.0, "EUR")


def test_a_comparison_with_keys_of_a_run_or_with_neither_is_none_of_those(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds 'workers', which means nothing there"):
        load_plan(fakes.write_conf(tmp_path, "workers = 2\n" + fakes.CONF))
    with pytest.raises(ConfigurationError, match="no 'base'"):
        load_plan(fakes.write_conf(tmp_path, "trials = 3\n"))


def test_a_secret_is_no_factor(tmp_path: Path) -> None:
    """Its values would be the groups' names; of a variant's own keys the results keep none."""
    varied = fakes.CONF.replace("batch = [32, 64]", '"spark.ssl.keyPassword" = ["abcdefg", "hijklm"]')
    for conf in (varied, varied.replace('["abcdefg", "hijklm"]', '"abcdefg"')):
        with pytest.raises(ConfigurationError, match=r"varies 'spark\.ssl\.keyPassword', a secret") as caught:
            load_plan(fakes.write_conf(tmp_path, conf))
        assert "abcdefg" not in str(caught.value)


def test_a_varied_key_cannot_be_set_for_all(tmp_path: Path) -> None:
    for assignment in ("batch=16", "transport=shuffle"):
        with pytest.raises(ConfigurationError, match="varies that key itself"):
            load_plan(fakes.write_conf(tmp_path), [assignment])


@pytest.mark.parametrize("path", COMPARISON_FILES, ids=lambda path: path.stem)
def test_the_files_of_this_repository_make_cells(path: Path) -> None:
    plan = load_plan(path)
    cells = cells_of(plan)
    assert plan.trials == 5
    assert plan.target_accuracy is not None
    assert len({cell.id for cell in cells}) == len(cells) >= 10


def test_on_other_data_every_text_names_a_base_that_was_made_for_them() -> None:
    """The digits' own batch on MNIST makes so many steps that a job-a-step transport is over its time."""
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "conf" / "runs").glob("*.toml")]
    with_data = re.compile(r"sparkdl-bench compare conf/runs/(\S+\.toml)(.*data\.path=.*)")
    commands = [found for text in texts for found in with_data.finditer(text.read_text(encoding="utf-8"))]
    assert len(commands) >= 4
    for command in commands:
        own_base = load_plan(ROOT / "conf" / "runs" / command[1]).base.name
        assert own_base != "digits-mlp" or "--base conf/runs/mnist-mlp.toml" in command[2], command[0]


def test_a_property_of_spark_keeps_its_name(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", '"spark.broadcast.blockSize" = ["256k", "4m"]')
    cells = cells_of(fakes.plan_of(tmp_path, conf))
    assert {cell.run.spark["spark.broadcast.blockSize"] for cell in cells} == {"256k", "4m"}
    assert {cell.group for cell in cells if "fast" in cell.group} == {
        "fast, broadcast.blockSize 256k",
        "fast, broadcast.blockSize 4m",
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"clip_norm": "1"}, "Peers train with clip_norm = 0, and the run has 1"),
        ({"loss.name": "huber"}, "loss.name = cross-entropy"),
        ({"loss.class_weights": "balanced"}, "loss.class_weights = nothing, and the run has balanced"),
        ({"data.flip": "true"}, "data.flip = false"),
        ({"max_steps": "10"}, "max_steps = 0"),
    ],
)
def test_a_peer_that_would_train_another_way_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        fit_case(settings, Path("rows.npz"), {})


def test_a_peer_gets_the_whole_batch_and_as_many_threads(tmp_path: Path) -> None:
    neutral = {
        "clip_norm": "0.0",
        "data.flip": "False",
        "data.crop": "0",
        "data.normalize": "none",
    }
    case = fit_case({**neutral, "workers": "4", "batch": "128"}, tmp_path, {})
    assert (case.workers, case.batch, case.threads) == (4, 128, 1)
    shared = fit_case({"workers": "4", "batch": "128", "batch_per_worker": "16"}, tmp_path, {"spark.task.cpus": "2"})
    assert (shared.batch, shared.threads) == (64, 2)
    assert fit_case({"engine.threads": "3"}, tmp_path, {"spark.task.cpus": "2"}).threads == 3


def test_rows_that_a_peer_cannot_read_are_refused_and_the_scale_may_be_automatic(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"data\.source is 'csv'"):
        peer_data.check({"data.source": "csv"})
    for name, count in (("train", 2), ("t10k", 1)):
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 2]) + bytes([0, 255]) * count
        )
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, count]) + bytes(count))
    settings = {"data.source": "idx", "data.path": str(tmp_path), "data.scale": "auto"}
    peer_data.export(settings, tmp_path / "rows.npz")
    assert np.load(tmp_path / "rows.npz")["x_train"].tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_a_share_of_the_rows_varies_peers_too_and_they_get_the_same_rows(tmp_path: Path) -> None:
    conf = fakes.CONF.replace("batch = [32, 64]", '"data.share" = [0.4, 1]')
    cells = cells_of(fakes.plan_of(tmp_path, conf + '\n[[variant]]\nname = "ddp"\npeer = "pytorch-ddp"\n'))
    assert {cell.run.settings["data.share"] for cell in cells} == {"0.4", "1"}
    assert {cell.group for cell in cells if cell.peer} == {"ddp, data.share 0.4", "ddp, data.share 1"}
    assert len({peer_data.file_name(cell.run.settings) for cell in cells}) == 2
    # The same stand in TakenRowsSuite.
    assert peer_data.taken_rows(20, 0.4) == [0, 3, 6, 7, 11, 14, 16, 17]
    assert peer_data.taken_rows(20, 1.0) == list(range(20))
    assert peer_data.taken_rows(20, 0.001) == [0]
    for names, count in ((idx.TRAIN, 20), (idx.TEST, 7)):
        rows = np.arange(count, dtype=np.uint8)
        idx.write(tmp_path / "idx", names, idx.Set(rows.reshape(-1, 1, 1), rows % 3))
    settings = {"data.source": "idx", "data.path": str(tmp_path / "idx"), "data.scale": "1", "data.share": "0.4"}
    peer_data.export(settings, tmp_path / "rows.npz")
    with np.load(tmp_path / "rows.npz") as exported:
        assert exported["x_train"].ravel().tolist() == [0, 3, 6, 7, 11, 14, 16, 17]
        assert exported["y_train"].tolist() == [row % 3 for row in (0, 3, 6, 7, 11, 14, 16, 17)]
        assert exported["x_test"].ravel().tolist() == list(range(7))
    for share in ("0", "1.5", "nan", "half"):
        with pytest.raises(ConfigurationError, match=rf"'data\.share' has the value '{share}'"):
            peer_data.check({"data.share": share})


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "binary.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"binary\.toml' is not UTF-8 text: invalid start byte"):
        load_plan(file)
