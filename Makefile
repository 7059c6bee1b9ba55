# specfarm: the two commands of the README are `make search` and `make test`.
SETTING ?= cpu_c1_smollm2-135m_dflash2
PORT ?= 5000
export OMP_NUM_THREADS ?= 1
RUN = PYTHONPATH=.:engines/native .venv/bin/python

.PHONY: search test test-slow lint ui setup setup-dev sglang-cpu

search: setup            ## find, verify, measure and export a faster engine for the embedded model
	scripts/specfarm search $(SETTING) $(ARGS)

test: setup-dev          ## the everyday suite (a quarter of an hour on 2 cores)
	$(RUN) -m pytest -q $(ARGS)

test-slow: setup-dev     ## what needs the real model, minutes each
	$(RUN) -m pytest -q -m "slow and not gpu" --timeout=1800 $(ARGS)

lint: setup-dev          ## ruff and mypy --strict
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

ui: setup                ## MLflow on http://127.0.0.1:$(PORT)
	scripts/specfarm ui --port $(PORT)

sglang-cpu:              ## a real SGLang server for the slow contract tests, in .venv-sglang-cpu
	@scripts/setup_env.sh sglang-cpu

setup:
	@scripts/setup_env.sh demo

setup-dev:
	@scripts/setup_env.sh dev
