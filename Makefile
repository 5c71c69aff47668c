# make train   sets everything up, trains PPO2 on CartPole and prints the trained agent's score
# make test    sets everything up and runs the linters and the tests
# make help    lists the rest

PYTHON ?= python3
VENV ?= .venv
ALGO ?= ppo2
ENV ?= CartPole-v1
SEED ?= 1
WORKERS ?= 2

BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
DECLARED := pyproject.toml constraints.txt zoo/version.py
INSTALLED := $(VENV)/.installed
INSTALLED_FOR_TESTS := $(VENV)/.installed-for-tests
INSTALLED_FOR_SPEED := $(VENV)/.installed-for-speed
INSTALLED_FOR_SITE := $(VENV)/.installed-for-site

# The release that follows the pinned one: the documented commands are carried out with both.
HYDRA_TO_COME := $(VENV)/hydra-1.4.0rc3

# One thread for numpy's own products: two thread pools in one process fight for the cores.
export OPENBLAS_NUM_THREADS := 1

.PHONY: help train test test-slow lint format speed docs site serve constraints system-packages \
	packages-for-tests clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

train: $(INSTALLED)  ## train ALGO on ENV with the tuned file (PPO2 on CartPole-v1) and print the agent's score
	$(BIN)/zoo train algo=$(ALGO) env=$(ENV) seed=$(SEED)
	$(BIN)/zoo evaluate algo=$(ALGO) env=$(ENV) n_episodes=100

test: lint packages-for-tests  ## linters and tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-slow: $(INSTALLED_FOR_TESTS) system-packages packages-for-tests $(HYDRA_TO_COME)  ## the tests that take longer
	$(PIP_INSTALL) --editable '.[all,docs,test,envpool]'
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m slow
	PYTHONPATH="$(CURDIR)/$(HYDRA_TO_COME)" $(BIN)/python -m pytest tests/golden/test_command_line.py

lint: $(INSTALLED_FOR_TESTS) system-packages  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED_FOR_TESTS)  ## rewrite the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

speed: $(INSTALLED_FOR_SPEED) system-packages  ## steps per second beside Stable-Baselines3 and SBX
	$(BIN)/python scripts/compare_speed.py

docs: $(INSTALLED_FOR_TESTS)  ## rewrite tables, pictures and notebooks in docs/ and the stub for editors
	$(BIN)/python scripts/make_docs_tables.py
	$(BIN)/python scripts/make_stubs.py
	$(BIN)/python scripts/make_notebooks.py
	$(BIN)/python scripts/measure_house.py --draw
	$(BIN)/python scripts/draw_pictures.py

site: $(INSTALLED_FOR_SITE)  ## the documentation as a site in build/site, which needs no server
	$(BIN)/python -m mkdocs build --strict

serve: $(INSTALLED_FOR_SITE)  ## the same at http://127.0.0.1:8000, renewed as you write
	$(BIN)/python -m mkdocs serve

constraints: $(INSTALLED_FOR_SPEED)  ## pin what this environment has
	$(BIN)/python scripts/pin_constraints.py

clean:  ## remove the environment, caches and builds; runs/ stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo 'Zoo needs Python 3.10 or newer; name one: make PYTHON=python3.11 ...'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo 'Python has no venv here; on Debian: apt-get install python3-venv'; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): $(BIN)/python $(DECLARED)
	$(PIP_INSTALL) --editable .
	@touch $@

$(INSTALLED_FOR_TESTS): $(BIN)/python $(DECLARED)
	$(PIP_INSTALL) --editable '.[all,docs,test]'
	@touch $(INSTALLED) $(INSTALLED_FOR_SITE) $@

$(INSTALLED_FOR_SITE): $(BIN)/python $(DECLARED)
	$(PIP_INSTALL) --editable '.[docs]'
	@touch $(INSTALLED) $@

$(INSTALLED_FOR_SPEED): $(INSTALLED_FOR_TESTS)
	$(PIP_INSTALL) --editable '.[all,docs,test,bench]'
	@touch $@

$(HYDRA_TO_COME): $(INSTALLED_FOR_TESTS)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --target $@ \
		hydra-core==1.4.0rc3 omegaconf==2.4.1rc1

# Compiled updates need a C++ compiler and Python's headers. Without them Zoo runs, uncompiled.
system-packages: $(BIN)/python
	@missing=; \
	command -v g++ > /dev/null || missing=g++; \
	$(BIN)/python -c 'import os, sysconfig, sys; \
		sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' \
		|| missing="$$missing python3-dev"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; \
	else \
		echo "Not installed, so updates will not be compiled; on Debian: apt-get install $$missing"; \
	fi

# Commands that tests call, each with Debian's package; without one its tests are skipped.
COMMANDS_OF_TESTS := slurmctld:slurm-wlm munged:munge chromium:chromium zsh:zsh fish:fish pg_ctlcluster:postgresql

packages-for-tests:
	@missing=; \
	for each in $(COMMANDS_OF_TESTS); do \
		PATH=$$PATH:/usr/sbin:/sbin command -v "$${each%%:*}" > /dev/null || missing="$$missing $${each#*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $$missing; \
	else \
		echo "Not installed, so their tests are skipped; on Debian: apt-get install$$missing"; \
	fi
