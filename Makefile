# The commands of README, CI and the documentation. Needs git, make, a JDK (17+) and Python (3.10+); all else is brought.
#   make demo            from a bare clone to a trained model: in one process, then on two executors
#   make test            the whole suite on Spark 4.1; with SPARK=3.5 on Spark 3.5; TESTS='--long without' leaves out the long tests
#   make test-torch      the tests that need PyTorch, in an environment of its own (5 GB)
#   make test-torch-cases    PyTorch's own tests of torch.distributed for gloo, on our backend
#   make test-torch-releases the backend beside gloo on older releases of PyTorch too, an environment of 5 GB each
#   make test-optional   of UCX, Open MPI, PyTorch and BigDL the tests whose parts have changed, with what they need
#   make check           formatters, linters, types, warnings as errors, on both Spark lines
#   make bench           the short set; bench-net, bench-train, bench-models, bench-data, bench-peers, bench-sharded, bench-torch, bench-papers: the long ones
#   make peers           installs every peer that this host can run, one after the other, and trains with each; what was not there before is removed
#   make fuzz            the JVM's readers under Jazzer, ten seconds each; ARGS='--seconds 60 --targets run-file,csv' for more or for some
#   make soak            campaigns of kills, of 200 faults and of memory (ResNet-18's too); first the digits run on other Spark versions (make smoke), and tests too long for make test
#   make bench-train ARGS=--resume    any bench and soak with options of its command, here to go on with what was interrupted (of soak: the kills)
#   make release         wheel, source distribution and jars as the registries ask for them, in target/release; uploads nothing
#   make sbom            of what wheel and jars are made (CycloneDX), in target/sbom; make audit: what is known against it
#   make newcomer        the newcomer's path, from the wheel in a fresh environment to a report, each step timed
#   make wheel | docs | clean | distclean
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-torch test-torch-cases test-torch-releases test-optional fuzz mutants check bench bench-net bench-train bench-models bench-data bench-peers bench-sharded bench-papers bench-torch soak smoke peers venv jars assembly wheel newcomer release sbom audit docs clean distclean

SPARK ?= 4.1
ifeq ($(SPARK),4.1)
  VENV := .venv
  PYSPARK := pyspark==4.1.4
  LINE := 4
  SCALA := 2.13.16
  NEWEST_PYTHON := 13
else ifeq ($(SPARK),3.5)
  VENV := .venv-3.5
  PYSPARK := pyspark==3.5.9 numpy<2
  LINE := 3.5
  SCALA := 2.12.18
  NEWEST_PYTHON := 11
else
  $(error SPARK=$(SPARK) is not known; valid are SPARK=4.1 (the default) and SPARK=3.5)
endif

# As python/sparkdl_bench/version.py states it, for jars and wheel alike.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' python/sparkdl_bench/version.py)
# The time of every file in a wheel: the commit's, so that two builds of one commit give the same bytes.
EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)
PAGES := https://github.com/sparkdl-bench/sparkdl-bench/blob/v$(VERSION)
# Which of GnuPG's secret keys signs a release; empty: GnuPG's own choice.
KEY :=

# Words for the commands behind bench, bench-*, newcomer and soak; from make's command line alone.
ARGS :=

# One that this Spark and the pinned versions of pyproject.toml are made for, where the PATH has it; else any from 3.10 on.
PYTHON ?= $(firstword $(foreach newest,$(NEWEST_PYTHON) 99,$(foreach name,python3 python3.13 python3.12 python3.11 python3.10,\
  $(shell $(name) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $(newest)))' 2>/dev/null && echo $(name)))))
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(LINE)
CORE := $(VENV)/.core-$(LINE)
# A commit is a source too: every jar holds the commit it was built from.
COMMIT := $(wildcard $(shell git rev-parse --git-path logs/HEAD 2>/dev/null))
BUILD := build.sbt $(wildcard project/*.scala project/*.sbt project/build.properties conf/spark/*.conf) \
  $(addprefix python/sparkdl_bench/,natives.properties report/counted.json)
SOURCES := $(BUILD) $(COMMIT) $(shell find jvm/src/main -type f)

demo: $(CORE) target/.jars-$(LINE)
	@echo "One process, which is quickest on one machine:"
	$(BIN)/sparkdl-bench run conf/runs/digits-mlp.toml --set 'master=local[2]' --set name=digits-mlp-local
	@echo "Two executors, as on a cluster:"
	$(BIN)/sparkdl-bench run conf/runs/digits-mlp.toml

test: $(INSTALLED) target/.jars-$(LINE)
	$(BIN)/python project/run_tests.py --scala $(SCALA) $(TESTS)

# PyTorch is an extra and large: its tests have an environment of their own, and are skipped elsewhere.
test-torch: .venv-torch/.installed target/.jars-4
	.venv-torch/bin/python -m pytest tests/torch_backend tests/test_launch_torch.py tests/test_exports.py $(TESTS)

# ARGS: --only test_all_reduce_sum, --sync gloo to see what gloo makes of them.
test-torch-cases: .venv-torch/.installed target/.jars-4
	PYTHONPATH=tests .venv-torch/bin/python tests/torch_backend/pytorchs_tests.py $(ARGS)

# The oldest release that the extra `torch` takes, and one between that and the newest, which test-torch has.
TORCH_RELEASES ?= 2.3.1 2.9.1
test-torch-releases: $(foreach each,$(TORCH_RELEASES),.venv-torch-$(each)/.installed) target/.jars-4
	for each in $(TORCH_RELEASES); do .venv-torch-$$each/bin/python -m pytest tests/torch_backend/test_backend.py $(TESTS); done

.venv-torch-%/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-torch-$*
	.venv-torch-$*/bin/python -m pip install --quiet --disable-pip-version-check --editable . 'torch==$*' 'numpy<2' 'pyspark==4.1.4' \
	  $(shell sed -n 's/^    "\(pytest\|pytest-timeout\|hypothesis\)==\([0-9.]*\).*/\1==\2/p' pyproject.toml)
	touch $@

# ARGS: --parts ucx,mpi whatever has changed; --since REVISION.
test-optional: $(INSTALLED) target/.jars-4
	$(BIN)/python project/optional_tests.py $(ARGS)

.venv-torch/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,torch,torch-cases,frameworks]' 'pyspark==4.1.4'
	touch $@

# Tests that read sources and documents alone, in seconds: what they say should not take the whole suite to hear.
LAWS := $(addprefix tests/test_,$(addsuffix .py,layers scala_layers listed_mutants variants_doc architecture_doc figures older_results))

check: $(INSTALLED)
	project/sbt scalafmtSbtCheck scalafmtCheckAll +jvm/Test/compile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(LAWS)

bench: $(INSTALLED) target/.jars-$(LINE)
	$(BIN)/python -m sparkdl_bench.bench short $(ARGS)

bench-net bench-models bench-data bench-peers bench-sharded bench-papers: bench-%: $(INSTALLED) target/.jars-$(LINE)
	$(BIN)/python -m sparkdl_bench.bench $* $(ARGS)

# PyTorch's own environment, on Spark 4.1.
bench-torch: .venv-torch/.installed target/.jars-4
	.venv-torch/bin/python -m sparkdl_bench.bench torch $(ARGS)

bench-train: $(INSTALLED) target/.jars-$(LINE)
	$(BIN)/python -m sparkdl_bench.bench train $(ARGS)
	$(BIN)/python -m sparkdl_bench.bench ladder $(ARGS)
	$(BIN)/python -m sparkdl_bench.bench algorithms $(ARGS)

# Coverage-guided fuzzing of whatever reads what others wrote.
fuzz: $(CORE)
	$(BIN)/python project/fuzz.py --scala $(SCALA) $(ARGS)

soak: smoke .venv-torch/.installed
	$(BIN)/python project/fuzz.py --seconds 100
	$(BIN)/python project/listed_mutants.py
	$(BIN)/python -m pytest -m campaign tests
	.venv-torch/bin/python -m pytest -m campaign tests/torch_backend
	$(BIN)/python -m sparkdl_bench.bench faults $(ARGS)
	$(BIN)/python -m sparkdl_bench.bench soak $(ARGS)

# The jars of the Spark 4 line on the newest patches of Spark 4.0, 4.2 and 4.3; their environments are made once.
smoke: $(INSTALLED) target/.jars-4
	$(BIN)/python -m pytest -m smoke tests/test_smoke.py

# An environment for each peer, up to 6 GB at once. TESTS: -k 'numpy or mpi' for some.
peers: $(INSTALLED) target/.jars-$(LINE)
	$(BIN)/python -m pytest -m peers tests/test_peer_smoke.py $(TESTS)

# The virtual environment with this package in it, editable, beside the pyspark of the chosen line.
$(CORE): pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.10 or later on the PATH; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plot]' $(foreach each,$(PYSPARK),'$(each)')
	touch $@

# And what tests, checks and reports need besides; the demo does not wait for it.
$(INSTALLED): $(CORE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,report]' $(foreach each,$(PYSPARK),'$(each)')
	touch $@

# Mutants of the measuring code: those that were listed, then a sample by seed: make mutants ARGS='--sample 100 --seed 2 --parts bench'
mutants: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mutants]'
	$(BIN)/python project/listed_mutants.py
	$(BIN)/python project/mutants.py $(ARGS)

venv: $(INSTALLED)

# target/jars-LINE: the thin jar and all that it needs besides Spark, where sessions of this checkout find them.
jars: target/.jars-$(LINE)
target/.jars-4: $(SOURCES) | $(CORE)
	project/sbt ++2.13.16 jvm/stageJars
	touch $@
target/.jars-3.5: $(SOURCES) | $(CORE)
	project/sbt ++2.12.18 jvm/stageJars
	touch $@

assembly: $(INSTALLED)
	project/sbt ++$(SCALA) jvm/assembly

# One wheel with the thin jars of both lines, made from a copy so that nothing built lies among the sources.
wheel: target/.jars-4 target/.jars-3.5
	rm -rf target/wheel
	mkdir -p target/wheel/python dist
	cp pyproject.toml LICENSE target/wheel/
	# A registry's page has no files beside it: links to this repository's become whole addresses.
	sed -E 's#\]\(([^):\#]+)\)#]($(PAGES)/\1)#g' README.md >target/wheel/README.md
	cp -R python/sparkdl_bench target/wheel/python/
	mkdir -p target/wheel/python/sparkdl_bench/conf/spark target/wheel/python/sparkdl_bench/conf/runs
	cp conf/spark/*.conf target/wheel/python/sparkdl_bench/conf/spark/
	cp conf/runs/*.toml target/wheel/python/sparkdl_bench/conf/runs/
	find target/wheel -name __pycache__ -prune -exec rm -rf {} +
	cp target/jars-4/sparkdl-bench-spark-*.jar target/jars-3.5/sparkdl-bench-spark-*.jar target/wheel/python/sparkdl_bench/jars/
	chmod -R u=rwX,go=rX target/wheel
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist target/wheel

# Fails where a step does, or where the first trained net takes more than 90 s.
newcomer: wheel
	$(BIN)/python tests/newcomer_path.py dist/sparkdl_bench-$(VERSION)-py3-none-any.whl --natives target/jars-$(LINE) \
	  --spark $(patsubst pyspark==%,%,$(firstword $(PYSPARK))) $(ARGS)

# What `make wheel` makes, and beside it the source distribution, the jars with sources and documentation; signed and checked.
release: wheel $(VENV)/.release
	project/sbt $(foreach scala,2.13.16 2.12.18,++$(scala) jvm/packageBin jvm/packageSrc jvm/packageDoc jvm/makePom)
	rm -rf target/wheel/build
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m build --sdist --outdir dist target/wheel
	$(BIN)/python project/release.py --version $(VERSION) --epoch $(EPOCH) --dist dist $(if $(KEY),--key $(KEY))
	$(BIN)/python -m twine check --strict target/release/pypi/*.whl target/release/pypi/*.tar.gz

$(VENV)/.release: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]' $(foreach each,$(PYSPARK),'$(each)')
	touch $@

# Bills of materials of the wheel and of both jars; the hashes of native code in them are the pinned ones.
sbom: wheel $(VENV)/.supply
	project/sbt $(foreach scala,2.13.16 2.12.18,++$(scala) jvm/makePom)
	$(BIN)/python project/supply_chain.py sbom --version $(VERSION) --spark '$(firstword $(PYSPARK))'

# Exit status 3 where no advisories could be reached: then nothing is known, good or bad.
audit: sbom
	$(BIN)/python project/supply_chain.py audit --version $(VERSION) --spark '$(firstword $(PYSPARK))'

$(VENV)/.supply: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[supply]' $(foreach each,$(PYSPARK),'$(each)')
	touch $@

# The documentation as a site in target/docs, with the APIs of Scala and Python; a link that leads nowhere ends it.
docs: $(VENV)/.docs
	project/sbt ++$(SCALA) jvm/doc
	rm -rf target/docs target/docs-source
	mkdir -p target
	cp -R docs target/docs-source
	cp -R jvm/target/scala-$(basename $(SCALA))/api target/docs-source/scala
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation lies in target/docs/index.html."

$(VENV)/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]' $(foreach each,$(PYSPARK),'$(each)')
	touch $@

# What was built, and what tests and checks keep for their next time. Results are the user's.
clean:
	rm -rf target jvm/target dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests project benchmarks -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-3.5 .venv-torch .venv-torch-* python/sparkdl_bench.egg-info project/target project/project .bsp
