# Everything a person or CI types. `make` alone prints what there is.
.DEFAULT_GOAL := help
.PHONY: help setup venv check check-terraform test test-fast mutants demo drill-cap drill-chaos drill-faults drill-once drill-upgrade drill-restore fuzz audit rehearsal compose-smoke up down bench release lock clean

# The tools of ext4 are there, and not on everybody's path.
export PATH := $(PATH):/usr/sbin:/sbin

PYTHON := .venv/bin/python
SERVER := .venv/bin/promigence-server
CODE := $(wildcard app infra workers guest sdk demo docs drills tests bench)
FAST := $(wildcard $(addprefix tests/,unit flow api sdk contract architecture))
# Whole test suites of another project, 10,000 programs, random faults, and many processes at once on one database: for `make test`.
LONG := $(addprefix --ignore=tests/,unit/test_demo_environment.py unit/test_demo_rollout.py unit/test_ledger_proof.py \
	contract/test_store_processes.py flow/test_chaos.py)
# Simulated machines need no hypervisor, so no more than the virtual environment is set up for them.
SETUP_FOR_STACK := $(if $(filter fake,$(MACHINES)),venv,setup)

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install and build all that the product needs here; again is quick
	@infra/setup/run >&2

venv: ## only the virtual environment .venv, from hashed requirements
	@infra/setup/run venv >&2

check: venv ## linters, types, import contracts, architecture tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy $(CODE)
	.venv/bin/lint-imports --no-logo
	$(PYTHON) -m pytest -q tests/architecture

test-fast: venv ## tests without machines, within three minutes
	$(PYTHON) -m pytest -q --numprocesses 2 --dist worksteal -m "not machines" $(LONG) $(FAST)

# Tests without machines mostly wait for others, or for one processor: two at a time. Machines are timed, and have this one
# to themselves. The second run is had also when the first has failed.
test: setup ## set-up and all tests, on real machines
	$(PYTHON) -m pytest --numprocesses 2 --dist worksteal -m "not machines" tests; without=$$?; \
	$(PYTHON) -m pytest -m machines tests && exit $$without

check-terraform: venv ## modules and roots of terraform/: written well, valid, and doing what their own tests say
	$(PYTHON) -m pytest -q --numprocesses 2 --dist worksteal tests/terraform

mutants: venv ## small errors in the arithmetic of money, each of which a test must notice; JSON=1
	@$(PYTHON) -m tests.mutants $(if $(JSON),--json)

demo: setup ## set-up and the main job on real machines; JSON=1 ends with one JSON line
	@$(PYTHON) -m demo $(if $(JSON),--json)

drill-cap: setup ## kill parts of the stack in capped steps; SEEDS=20, or SEED=17 alone; JSON=1
	@$(PYTHON) -m drills.cap $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),20)) $(if $(JSON),--json)

drill-chaos: venv ## random faults on simulated machines, judged against the truth; FORKS=10000, SEED=1, EPISODES=1, JSON=1
	@$(PYTHON) -m drills.chaos $(if $(FORKS),--forks $(FORKS)) $(if $(SEED),--seed $(SEED)) $(if $(EPISODES),--episodes $(EPISODES)) $(if $(JSON),--json)

drill-faults: setup ## cause every kind of failure for real; ONLY='egress-*', QUICK=1 (what CI runs), JSON=1
	@$(PYTHON) -m drills.matrix $(if $(ONLY),--only '$(ONLY)') $(if $(QUICK),--quick) $(if $(JSON),--json)

drill-once: setup ## kill the worker at its worst moments under commands that are counted outside; COMMANDS=50, KILLS=6, JSON=1
	@$(PYTHON) -m drills.once $(if $(COMMANDS),--commands $(COMMANDS)) $(if $(KILLS),--kills $(KILLS)) $(if $(JSON),--json)

fuzz: venv ## make what guests say hostile, each parser for its share of MINUTES=10; ONLY=request, JSON=1
	@$(PYTHON) -m drills.fuzz --minutes $(or $(MINUTES),10) $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json)

drill-upgrade: setup ## the release before becomes this one under a command that runs for MINUTES=10; QUICK=1, OLD=tag, JSON=1
	@$(PYTHON) -m drills.upgrade $(if $(MINUTES),--minutes $(MINUTES)) $(if $(OLD),--old $(OLD)) $(if $(QUICK),--quick) $(if $(JSON),--json)

drill-restore: setup ## PostgreSQL is put back from a backup under machines from before and after it; JSON=1
	@$(PYTHON) -m drills.restore $(if $(JSON),--json)

audit: venv ## known vulnerabilities and licences of what the lock files pin; fails where they cannot be asked about; JSON=1
	@$(PYTHON) infra/setup/audit.py $(if $(JSON),--json)

rehearsal: setup ## the whole path on AWS, on this machine: three hosts, one lost in mid-step; QUICK=1, JSON=1
	@$(PYTHON) -m drills.rehearsal $(if $(QUICK),--quick) $(if $(JSON),--json)

compose-smoke: venv ## docker-compose.yml on a Docker engine, the demo's job through it; BUILD=1 builds our images anew, JSON=1
	@$(PYTHON) -m drills.compose $(if $(BUILD),--build) $(if $(JSON),--json)

up: $(SETUP_FOR_STACK) ## start the stack here; MACHINES=fake simulates the machines
	@$(SERVER) up $(if $(MACHINES),--machines $(MACHINES))

down: ## stop the stack of this checkout, also after a crash
	@if [ -x $(SERVER) ]; then $(SERVER) down; fi

bench: setup ## measure; results as JSON under bench/results/
	$(PYTHON) -m bench

release: ## pack what is committed for an account: dist/promigence-RELEASE.tar.gz and its sha256
	@deploy/image/release

# Resolved for Linux and every supported Python at once; a lock file names no index and no host.
LOCK := .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--upgrade --group build pyproject.toml sdk/pyproject.toml
lock: venv ## choose versions anew: requirements.txt (run time), requirements-dev.txt (checkout)
	$(LOCK) --output-file requirements.txt
	$(LOCK) --group dev --constraint requirements.txt --output-file requirements-dev.txt

clean: down ## remove what set-up and tests made in this checkout
	rm -rf .promigence .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
