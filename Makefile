# PROFILE=full has vLLM, PROFILE=light has CTranslate2 in its place; left empty, the best that runs here.
PROFILE  ?=
PYTHON   ?= python3
PROTOS   := $(shell find protos -name '*.proto' | sort)
SERVICES := $(filter %_service.proto,$(PROTOS))
PROTOC    = python -m grpc_tools.protoc -Iprotos
BASELINE := protos/baseline/v1.binpb
SETUP     = $(PYTHON) tools/setup_venv.py $(if $(PROFILE),--profile=$(PROFILE))
PROFILED  = $(shell $(SETUP) --show-profile)

export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: setup lock protos baseline lint format test demo up bench bench-quick mutants docs
.DEFAULT_GOAL := setup

setup:  # .venv and the models' weights; quick if nothing has changed.
	@$(SETUP)

lock: setup  # requirements/*.lock from pyproject.toml.
	python -m tools.lock

protos: setup  # stagemesh/api from protos/.
	buf lint
	rm -rf stagemesh/api
	$(PROTOC) --python_out=. --mypy_out=quiet:. $(PROTOS)
	$(PROTOC) --grpc_python_out=. --mypy_grpc_out=quiet,only_async:. $(SERVICES)
	find stagemesh/api -type d -exec touch {}/__init__.py ';'

baseline: setup  # What `lint` compares the protos with: run it when a version is released.
	buf build --output $(BASELINE)
	python -m tests.helpers.filled_messages

lint: setup
	ruff check .
	ruff format --check .
	lint-imports --no-logo
	mypy
	buf lint
	buf format --diff --exit-code
	buf breaking --against $(BASELINE)
	python -m tools.lock --check

format: setup
	ruff check --fix-only --quiet .
	ruff format .
	buf format --write

test: setup  # Every tier that needs no accelerator, and whether what docs/design/faults.md names ran.
	pytest --numprocesses=2 --junitxml=out/tests/memory.xml $(wildcard tests/unit tests/property)
	pytest --junitxml=out/tests/processes.xml $(wildcard tests/contract tests/e2e tests/chaos)
	python -m tools.faults --ran out/tests/memory.xml out/tests/processes.xml

demo: setup  # One checked job of each kind on real models; results are in out/demo/.
	python -m tools.demo --profile=$(PROFILED)

up: setup  # The demo mesh, until it is interrupted.
	stagemesh up pipelines/demo$(if $(filter light,$(PROFILED)),-light).yaml

bench: setup  # The budgets, beside peers; results are in out/bench.json. Fails if one is missed.
	python -m tests.perf

bench-quick: setup
	python -m tests.perf --quick

mutants: setup  # Breaks the code with each patch in tests/mutants/, and needs a red test for each.
	python -m tools.mutants

docs: setup  # The pages that are generated from the code.
	python -m tools.docs
	python -m tests.helpers.invariants
