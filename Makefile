# Everything a developer runs. Each target sets itself up on a bare machine: Python 3.11 or newer
# with pip is enough. The set-up is repeated only when what it depends on has changed.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# Of pyproject.toml's dependency groups, as a file: `pip` of a new environment may not know them.
GROUP   = $(BIN)/python .ci/group $(1) >$(VENV)/$(1).txt
# What pip would do on one core, and takes longest. Some packages ship templates that do not compile.
COMPILE := $(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
BENCH_STAMP := $(VENV)/.ready-bench
PROMETHEUS := $(VENV)/prometheus
BROWSER_STAMP := $(VENV)/.ready-browser
ADAPTERS_STAMP := $(VENV)/.ready-adapters
FUZZ_STAMP := $(VENV)/.ready-fuzz
REFERENCE_STAMP := $(VENV)/.ready-reference
# The peers of the race and what they need stay out of the environment that tests run in.
RACE_VENV  ?= .venv-race
RACE_STAMP := $(RACE_VENV)/.ready
RACE_PIP   := $(RACE_VENV)/bin/python -m pip install --quiet -c constraints.txt \
	-c bench/recovery/constraints.txt

# Trainers that need environments of their own.
KERAS_VENV    ?= .venv-keras
KERAS_STAMP   := $(KERAS_VENV)/.ready
MAXTEXT_VENV  ?= .venv-maxtext
MAXTEXT_STAMP := $(MAXTEXT_VENV)/.ready
PAX_VENV      ?= .venv-pax
PAX_STAMP     := $(PAX_VENV)/.ready
# The cluster of `make ray`, whose nodes are hosts of the lab.
RAY_VENV      ?= .venv-ray
RAY_STAMP     := $(RAY_VENV)/.ready
TRIALS        := tests/adapters/test_trials.py tests/adapters/test_iterables.py

# One worker more than there are cores: real tests wait for the processes that they start. Virtual
# ones wait for nobody. A worker takes half a gigabyte, so no more than six.
CORES           = $(shell nproc 2>/dev/null || echo 1)
PYTEST_WORKERS ?= $(shell echo $$(($(CORES) < 5 ? $(CORES) + 1 : 6)))
VIRTUAL_WORKERS ?= $(shell echo $$(($(CORES) < 6 ? $(CORES) : 6)))
PYTEST_ARGS    ?=
# Fixtures of a module are made once; the longest files come first (tests/conftest.py).
BY_FILE        := --dist loadfile --no-loadscope-reorder
# A part that was asked for may have no test of this tier: pytest ends with 5 then.
NONE_IS_FINE    = $(if $(PYTEST_ARGS),|| test $$? = 5)
# Rounds of `make tests-real`.
TIMES          ?= 1
DEMO_FLAGS     ?=
# Of each reader; FUZZ_TARGETS names some of them (tests/fuzz/fuzz_targets.py), none means all.
FUZZ_SECONDS   ?= 60
FUZZ_TARGETS   ?=
# Random fault schedules of `make schedules`, the first one's seed, and how many of `make fuzz`.
SCHEDULES      ?= 1000000
SCHEDULES_FROM ?= 0
FUZZ_SCHEDULES ?= 20000
FAULTS_TIMES   ?= 1
CHAOS_KILLS    ?= 10000
CHAOS_MINUTES  ?= 60
CHAOS_FLAGS    ?=
HOSTS_FLAGS    ?=
# Random stories of maintenance of `make notices`, in virtual time and with real processes.
NOTICES        ?= 1000
NOTICES_REAL   ?= 50
RACE_FLAGS     ?=
PROGRAM_FLAGS  ?=
TRUTH_FLAGS    ?=
VERSIONS_FLAGS ?=

# The compiled forms of tests are kept, whatever the shell says: with their asserts rewritten a test
# file takes five times as long to load, and each worker loads them all.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup test virtual contracts tests-real check lint format types demo autocheckpoint faults faults-hosts chaos chaos-hosts crash browser prometheus fuzz schedules \
	bench race race-hosts kills truth agent-trainers trainers pax adapters ray reference program parity hosts notices versions docs picture clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create the virtual environment and install everything that tests need

# Build isolation would fetch an unpinned builder; it is installed here, pinned like the rest.
# ml-goodput-measurement is there for its tests, which run against our face of it; what it needs of
# a cloud's clients is not.
$(STAMP): pyproject.toml constraints.txt hatch_build.py .ci/venv .ci/group
	PYTHON="$(PYTHON)" .ci/venv "$(VENV)"
	$(BIN)/python -m pip install --quiet -c constraints.txt hatchling editables
	$(call GROUP,test)
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation --no-compile \
		-e '.[all,jax,torch]' -r $(VENV)/test.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps ml-goodput-measurement
	$(COMPILE)
	@touch $@

$(BENCH_STAMP): $(STAMP)
	$(call GROUP,bench)
	$(BIN)/python -m pip install --quiet -c constraints.txt -r $(VENV)/bench.txt
	@touch $@

# Without its dependencies: one of them is an old name of another, which it also needs.
$(RACE_STAMP): pyproject.toml constraints.txt bench/recovery/constraints.txt hatch_build.py .ci/venv .ci/group
	PYTHON="$(PYTHON)" .ci/venv "$(RACE_VENV)"
	$(RACE_PIP) hatchling editables
	$(RACE_VENV)/bin/python .ci/group race >$(RACE_VENV)/race.txt
	$(RACE_PIP) --no-build-isolation -e '.[jax,torch,stacks]' -r $(RACE_VENV)/race.txt
	$(RACE_PIP) --no-deps nvidia-resiliency-ext
	@touch $@

$(BROWSER_STAMP): $(STAMP) .ci/browser
	.ci/browser
	$(call GROUP,browser)
	$(BIN)/python -m pip install --quiet -c constraints.txt -r $(VENV)/browser.txt
	@touch $@

$(ADAPTERS_STAMP): $(STAMP)
	$(call GROUP,adapters)
	$(BIN)/python -m pip install --quiet -c constraints.txt -r $(VENV)/adapters.txt
	@touch $@

# Of a trainer's environment: its folder, and the group of what it needs, which names its constraints.
# Most of what it holds is never imported: what is, is compiled then.
TRAINER_PIP = $(1)/bin/python -m pip install --quiet --no-compile -c tests/adapters/constraints-$(2).txt
TRAINER_NEEDS := pyproject.toml constraints.txt hatch_build.py .ci/venv .ci/group
define TRAINER_ENVIRONMENT
	$(1)/bin/python .ci/group $(2) trials >$(1)/needs.txt
	$(call TRAINER_PIP,$(1),$(2)) hatchling editables -r $(1)/needs.txt
	$(call TRAINER_PIP,$(1),$(2)) --no-build-isolation -e .
	@touch $(1)/.ready
endef

$(KERAS_STAMP): $(TRAINER_NEEDS) tests/adapters/constraints-keras.txt
	PYTHON="$(PYTHON)" .ci/venv $(KERAS_VENV)
	$(call TRAINER_ENVIRONMENT,$(KERAS_VENV),keras)

# MaxText's wheel names nothing that it needs outside of extras for accelerators.
$(MAXTEXT_STAMP): $(TRAINER_NEEDS) tests/adapters/constraints-maxtext.txt
	python=$$($(PYTHON) tests/versions/find_python.py 3.12) && PYTHON="$$python" .ci/venv $(MAXTEXT_VENV)
	$(call TRAINER_ENVIRONMENT,$(MAXTEXT_VENV),maxtext)

# Pax needs a Python that is too old for Holdfast, which runs it from another environment. Some of its
# packages are built here; what builds them is pinned like the rest.
$(PAX_STAMP): pyproject.toml tests/adapters/constraints-pax.txt .ci/venv .ci/group
	python=$$($(PYTHON) tests/versions/find_python.py 3.10) && PYTHON="$$python" .ci/venv $(PAX_VENV) 10
	$(PYTHON) .ci/group pax >$(PAX_VENV)/needs.txt
	$(call TRAINER_PIP,$(PAX_VENV),pax) setuptools wheel
	$(call TRAINER_PIP,$(PAX_VENV),pax) --no-build-isolation -r $(PAX_VENV)/needs.txt
	@touch $@

$(RAY_STAMP): $(TRAINER_NEEDS) tests/engines/constraints-ray.txt
	PYTHON="$(PYTHON)" .ci/venv $(RAY_VENV)
	$(RAY_VENV)/bin/python .ci/group ray trials >$(RAY_VENV)/needs.txt
	$(RAY_VENV)/bin/python -m pip install --quiet -c tests/engines/constraints-ray.txt hatchling editables -r $(RAY_VENV)/needs.txt
	$(RAY_VENV)/bin/python -m pip install --quiet -c tests/engines/constraints-ray.txt --no-build-isolation -e .
	@touch $@

$(FUZZ_STAMP): $(STAMP)
	$(call GROUP,fuzz)
	$(BIN)/python -m pip install --quiet -c constraints.txt -r $(VENV)/fuzz.txt
	@touch $@

$(REFERENCE_STAMP): $(STAMP)
	$(call GROUP,reference)
	$(BIN)/python -m pip install --quiet -c constraints.txt -r $(VENV)/reference.txt
	@touch $@

# The contracts have the machine to themselves: their processes have deadlines to keep.
test: $(STAMP) ## Lint, types, the virtual tests, the contracts
	$(MAKE) --jobs=2 check virtual
	$(MAKE) contracts

virtual: $(STAMP) ## The tests without processes and without a clock
	$(BIN)/pytest --tier virtual -n $(VIRTUAL_WORKERS) $(BY_FILE) $(PYTEST_ARGS) $(NONE_IS_FINE)

contracts: $(STAMP) ## Each edge to the system once, with real processes, one test at a time
	$(BIN)/pytest --tier contract $(PYTEST_ARGS) $(NONE_IS_FINE)

tests-real: $(STAMP) ## Every other test with real processes, TIMES times: how often each fails, and of what
	PROMETHEUS_FOLDER=$(PROMETHEUS) $(BIN)/python tests/failure_rate.py --times $(TIMES) -- \
		--tier real -n $(PYTEST_WORKERS) $(BY_FILE) $(PYTEST_ARGS)

check: lint types

lint: $(STAMP) ## Style: ruff's rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Types: mypy --strict on src and bench
	$(BIN)/mypy

format: $(STAMP) ## Put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

crash: $(STAMP) ## Every state after a power cut, every operation failing once: the thorough form
	CRASH=long $(BIN)/pytest -n $(PYTEST_WORKERS) --dist load tests/crash $(PYTEST_ARGS)

browser: $(BROWSER_STAMP) ## Open the pages in a real browser; draw the pictures of them for the docs
	$(BIN)/pytest tests/browser $(PYTEST_ARGS)
	$(BIN)/python docs/images/plan.py
	$(BIN)/python docs/images/run.py

prometheus: $(STAMP) ## Rules, dashboard and numbers against a real Prometheus server
	.ci/prometheus $(PROMETHEUS)
	PROMETHEUS_FOLDER=$(PROMETHEUS) $(BIN)/pytest tests/prometheus $(PYTEST_ARGS)

demo: $(STAMP) ## Train a language model through a notice, a SIGKILL and a crash; show the report
	$(BIN)/python examples/demo/demo.py $(DEMO_FLAGS)

autocheckpoint: $(STAMP) ## The same maintenance announced and not: goodput of both, and a picture (2 minutes)
	$(BIN)/python examples/demo/autocheckpoint.py --picture docs/images/autocheckpoint.svg

faults: $(STAMP) ## Every fault there is, for one rank and two, FAULTS_TIMES times in a row
	for time in $$(seq $(FAULTS_TIMES)); do \
		FAULTS=full $(BIN)/pytest -n $(PYTEST_WORKERS) $(PYTEST_ARGS) tests/faults \
			tests/e2e/test_distributed_jax.py tests/e2e/test_distributed_torch.py \
			tests/session/test_together_jax.py tests/session/test_together_torch.py \
			tests/examples/test_two_ranks.py || exit 1; \
	done

# A trial is a dozen processes on four hosts, which must not fall silent for want of a core.
faults-hosts: $(STAMP) ## A host lost in every phase of a run, in every way, with and without a spare
	FAULTS=full $(BIN)/pytest -n $$(($(CORES) < 4 ? 1 : $(CORES) / 2)) --dist load tests/lab/test_fault_matrix.py $(PYTEST_ARGS)

hosts: $(STAMP) ## Warn the host agent 50 times, with real processes: nobody twice, nobody early
	$(BIN)/python tests/chaos/hosts.py $(HOSTS_FLAGS)

notices: $(STAMP) ## NOTICES random stories of maintenance, NOTICES_REAL of them with real processes
	$(BIN)/python tests/maintenance/maintenance_campaign.py --notices $(NOTICES)
	$(BIN)/python tests/maintenance/maintenance_real.py --stories $(NOTICES_REAL)

agent-trainers: $(BENCH_STAMP) ## Orbax and PyTorch, saved by the host agent before their host is taken
	TRAINERS=whole $(BIN)/pytest tests/agent/test_others_trainers.py $(PYTEST_ARGS)

adapters: $(ADAPTERS_STAMP) ## The examples of Hugging Face, Lightning, Orbax and FSDP2: stopped, killed, and equal to the last bit
	$(BIN)/pytest tests/adapters

trainers: $(KERAS_STAMP) $(MAXTEXT_STAMP) ## As adapters, in environments of their own: Keras, TensorFlow, MaxText, Pax (9 GB, 30 minutes)
	$(KERAS_VENV)/bin/python -m pytest $(TRIALS) tests/adapters/test_keras.py tests/adapters/test_ruler.py -k 'keras or tensorflow or tf_data' $(PYTEST_ARGS)
	$(MAXTEXT_VENV)/bin/python -m pytest $(TRIALS) tests/adapters/test_maxtext.py tests/adapters/test_ruler.py -k 'maxtext or grain' $(PYTEST_ARGS)
	$(MAKE) pax

pax: $(STAMP) ## Pax alone, as make trainers has it (3 GB, 10 minutes); left out where there is no Python 3.10
	@if $(PYTHON) tests/versions/find_python.py 3.10 >/dev/null 2>&1; then \
		$(MAKE) $(PAX_STAMP) && PAX_VENV=$(PAX_VENV) $(BIN)/pytest tests/adapters/test_pax.py $(PYTEST_ARGS); \
	else \
		echo "Pax is left out: it needs Python 3.10, which is neither on the path nor where pyenv keeps them."; \
	fi

ray: $(RAY_STAMP) ## Runs on a real Ray cluster of three nodes, in an environment of its own (400 MB, 5 minutes)
	$(RAY_VENV)/bin/python -m pytest tests/engines/test_ray_cluster.py $(PYTEST_ARGS)

reference: $(REFERENCE_STAMP) ## The reference trainer: each of its switches, and its runs struck; flax, grain and qwix
	$(BIN)/pytest tests/examples/test_reference.py tests/examples/test_reference_grid.py tests/examples/test_reference_survives.py $(PYTEST_ARGS)

program: $(REFERENCE_STAMP) ## What raises program goodput, and what shortens a start: two ladders and their pictures (PROGRAM_FLAGS)
	$(BIN)/python bench/program/ladder.py $(PROGRAM_FLAGS)
	$(BIN)/python bench/program/startup.py
	$(BIN)/python bench/program/drawing.py

parity: $(REFERENCE_STAMP) ## The reference trainer's loss after 300 steps under each switch, beside that without
	$(BIN)/python bench/program/ladder.py --size small --most-worse 0.02

versions: ## The oldest and the newest JAX on Python 3.11 to 3.13, PyTorch and trainers on 3.11: a table (an hour)
	$(PYTHON) tests/versions/try_versions.py $(VERSIONS_FLAGS)

chaos: $(STAMP) ## Kill short runs at random moments, CHAOS_KILLS times; nothing may be lost
	$(BIN)/python tests/chaos/campaign.py --kills $(CHAOS_KILLS) $(CHAOS_FLAGS)

chaos-hosts: $(STAMP) ## Strike runs of several hosts at random for CHAOS_MINUTES (60); nothing may be lost
	$(BIN)/python tests/chaos/many_hosts.py --minutes $(CHAOS_MINUTES) $(CHAOS_FLAGS)

bench: $(BENCH_STAMP) ## Measure against peers and physical floors; prints the table of bench/README.md
	$(BIN)/python bench/run.py
	$(MAKE) race

truth: $(STAMP) ## A plan beside what came of it: the race's kills, simulated and real (5 minutes)
	$(BIN)/python bench/recovery/truth.py $(TRUTH_FLAGS)

race: $(RACE_STAMP) ## Recovery beside its peers, under the same faults: a table and a picture (3 hours)
	$(RACE_VENV)/bin/python bench/recovery/race.py $(RACE_FLAGS)
	$(RACE_VENV)/bin/python bench/recovery/picture.py

race-hosts: $(RACE_STAMP) ## The race on three hosts and a spare, of which one after the other loses its power (45 minutes)
	$(RACE_VENV)/bin/python bench/recovery/hosts_race.py $(RACE_FLAGS)

kills: $(RACE_STAMP) ## 200 kills in a row, PyTorch and JAX: is there one that it never comes back from?
	$(RACE_VENV)/bin/python bench/recovery/race.py --ranks 2 --kills 200 $(RACE_FLAGS)

fuzz: $(FUZZ_STAMP) ## Feed every reader rubbish, led by coverage, for FUZZ_SECONDS each
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -n $(PYTEST_WORKERS) tests/fuzz/test_planted.py
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/python tests/fuzz/campaign.py $(FUZZ_TARGETS)
	$(BIN)/python tests/schedules/schedule_campaign.py --schedules $(FUZZ_SCHEDULES)

schedules: $(STAMP) ## SCHEDULES random fault schedules against the core; every interleaving of a save
	$(BIN)/python tests/schedules/schedule_campaign.py --schedules $(SCHEDULES) --first $(SCHEDULES_FROM)
	$(BIN)/python tests/core/test_agree_exhaustive.py
	$(BIN)/python tests/core/test_host_exhaustive.py
	$(BIN)/python tests/walks/test_terms.py
	$(BIN)/python tests/walks/test_members.py
	$(BIN)/python tests/walks/test_copies.py
	$(BIN)/python tests/walks/test_followers.py

docs: $(STAMP) ## Write the generated pages of docs/reference anew
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/state_machines.py

picture: $(STAMP) ## Train the demo again and draw its report into docs/images/report.svg
	$(BIN)/python examples/demo/demo.py --picture docs/images/report.svg

clean: ## Remove what was built
	rm -rf $(VENV) $(RACE_VENV) $(KERAS_VENV) $(MAXTEXT_VENV) $(PAX_VENV) $(RAY_VENV) .venv-versions build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench examples docs -name __pycache__ -type d -prune -exec rm -rf {} +
