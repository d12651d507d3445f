# Needs Python 3.11 or newer and make. Everything else is installed on first use, at pinned versions, into .venv;
# for `make serve` only what serving needs, into .venv-serve.

VENV  := .venv
SERVE := .venv-serve
BENCH := .venv-bench
FRAMEWORKS := .venv-frameworks
DOCS  := .venv-docs
NPM_GATEWAYS := portkey claude-code-router 9router
NPM_PLACES := $(NPM_GATEWAYS:%=requirements/%/node_modules)
CONSOLE := console/node_modules
CORES := $(shell getconf _NPROCESSORS_ONLN)
PARALLEL := --maxprocesses 8 --dist worksteal
QUICK := tests/laws tests/protocols tests/call_repair tests/tool_formats tests/golden tests/policy tests/seeds $(addprefix tests/conformance/test_,cases.py grid.py expectations.py strict.py) \
         $(addprefix tests/test_,token_estimate.py schema.py sse.py times.py)
GATEWAYS ?= $(COMPARED)
COMPARED := toolwire litellm llm-rosetta portkey switchyard claude-code-router 9router
UV    ?= uv
BIN   := $(VENV)/bin
LOCK  := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
         --no-header --no-annotate

.DEFAULT_GOAL := help
.PHONY: help serve package release test test-quick test-pythons test-agents test-agents-full lint types check format bench bench-gateway bench-bytecodes bench-instructions chaos conformance frameworks console test-console test-deploy console-pictures docs pictures lock sbom audit clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: $(SERVE)/.ready ## Run the gateway on http://127.0.0.1:8642
	@$(SERVE)/bin/toolwire serve $(ARGS)

test: $(VENV)/.ready $(FRAMEWORKS)/.ready ## Run the tests; ARGS="-k words" selects some
	@$(BIN)/python -m pytest -n $(or $(WORKERS),$(shell expr $(CORES) + 1)) $(PARALLEL) $(ARGS)

test-quick: $(VENV)/.ready ## Run the quick tests: laws, protocols, cases in process, schemas, policy
	@$(BIN)/python -m pytest -n $(or $(WORKERS),$(CORES)) $(PARALLEL) -m "not slow" $(QUICK) $(ARGS)

test-pythons: $(VENV)/.ready ## Test the wheel with Python 3.11 to 3.14, where they are found: first request, laws, cases
	@$(BIN)/python .ci/pythons.py

package: $(VENV)/.ready ## Build wheel and sdist in dist/, install each into a clean environment, and try every command
	@$(BIN)/python .ci/package.py

release: $(VENV)/.ready ## Prepare a release: VERSION=0.2.0; a dry run, unless PUBLISH=1 (then it commits and tags)
	@$(BIN)/python .ci/release.py $(VERSION) $(if $(filter 1,$(PUBLISH)),--for-real)

test-agents: $(VENV)/.ready ## Run the real agents: one round trip with every provider protocol
	@$(BIN)/python tests/agents/install.py
	@$(BIN)/python -m pytest tests/agents $(ARGS)

test-agents-full: $(VENV)/.ready ## Run the real agents: every scene
	@$(BIN)/python tests/agents/install.py
	@$(BIN)/python -m pytest tests/agents --full $(ARGS)

lint: $(VENV)/.ready ## Check style, formatting and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo --no-cache

types: $(VENV)/.ready ## Check the types with mypy
	@$(BIN)/mypy

check: lint types audit docs package test test-deploy test-console test-agents ## Run everything that continuous integration runs

format: $(VENV)/.ready ## Format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(BENCH)/.ready ## Measure the library's speed beside other libraries
	@LITELLM_LOCAL_MODEL_COST_MAP=True $(BENCH)/bin/python -m bench $(ARGS)

bench-gateway: $(BENCH)/.ready ## Measure the gateway's speed beside a minimal gateway and others
	@$(BENCH)/bin/python -m bench.gateway $(ARGS)

bench-bytecodes: $(VENV)/.ready ## Count the bytecodes of an exchange, the same on every machine
	@$(BIN)/python -m bench.gateway.bytecodes $(ARGS)

bench-instructions: $(VENV)/.ready ## Count the CPU instructions of a translation, with valgrind
	@$(BIN)/python -m bench.gateway.instructions $(ARGS)

chaos: $(VENV)/.ready ## Test faults, slow readers, floods, hostile requests and kills: about half a minute
	@PYTHONPATH=tests $(BIN)/python -m bench.chaos --write docs/reliability.md $(ARGS)

conformance: $(VENV)/.ready $(BENCH)/.ready $(patsubst %,requirements/%/node_modules/.ready,$(filter $(NPM_GATEWAYS),$(GATEWAYS))) ## Test this gateway and others with the cases, and write docs/conformance.md
	@for gateway in $(GATEWAYS); do \
		echo "Testing $$gateway …"; \
		$(BIN)/toolwire conformance --target $$gateway --from $(BIN) --from $(BENCH)/bin $(NPM_PLACES:%=--from %/.bin) \
			--json docs/conformance/$$gateway.json $(ARGS) >/dev/null || exit; \
	done
	@$(BIN)/toolwire conformance --compare $(COMPARED:%=docs/conformance/%.json) \
		--markdown docs/conformance.md

console: $(VENV)/.ready $(CONSOLE)/.ready ## Build the console's page into the package (needs Node), with its types from the API
	@$(BIN)/python .ci/console_types.py
	@cd console && npm run --silent build

test-console: $(VENV)/.ready ## Test the console in a real browser (Chromium); says so if there is none
	@$(BIN)/python tests/console/install.py
	@$(BIN)/python tests/agents/install.py
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/console $(ARGS)

test-deploy: $(VENV)/.ready ## Test deploy/ with Helm, which is built first (needs Go; says so if there is none)
	@if command -v go >/dev/null; then $(MAKE) --no-print-directory .helm/helm; fi
	@$(BIN)/python -m pytest tests/test_deploy.py tests/test_helm.py $(ARGS)

console-pictures: $(VENV)/.ready ## Make the pictures of the console for the README and the documentation again (needs Chromium)
	@PYTHONPATH=tests $(BIN)/python -m console.pictures

frameworks: $(FRAMEWORKS)/.ready ## Install LangChain and pydantic-ai for the tests (`make test` does it, too)

docs: $(DOCS)/.ready ## Build the documentation site in build/site, and check its links
	@$(DOCS)/bin/python .ci/site.py

pictures: $(VENV)/.ready $(DOCS)/.ready ## Record the terminal pictures of the README and the documentation again
	@$(DOCS)/bin/python .ci/pictures.py $(BIN)/toolwire

lock: ## Pin the versions of all dependencies again (needs uv)
	$(LOCK) pyproject.toml --group build --output-file requirements/serve.txt
	$(LOCK) pyproject.toml --group dev --output-file requirements/dev.txt
	$(LOCK) pyproject.toml --extra store --extra redis --extra mcp --extra aws --extra google --extra otel --group build --output-file requirements/gateway.txt
	$(LOCK) pyproject.toml --group frameworks --group build --output-file requirements/frameworks.txt
	$(LOCK) --group docs --output-file requirements/docs.txt
	$(LOCK) pyproject.toml --group bench --override requirements/bench-override.txt --output-file requirements/bench.txt

sbom: $(VENV)/.ready ## Write the gateway's SBOM (CycloneDX) to dist/toolwire.cdx.json, from its lock file
	@mkdir -p dist
	@$(BIN)/python .ci/sbom.py requirements/gateway.txt >dist/toolwire.cdx.json
	@echo dist/toolwire.cdx.json

audit: $(VENV)/.ready ## Ask for known vulnerabilities of the pinned packages (needs the network; says so if there is none)
	@$(BIN)/python .ci/audit.py requirements/gateway.txt requirements/dev.txt

clean: ## Remove environments and caches
	rm -rf .helm $(VENV) $(SERVE) $(BENCH) $(FRAMEWORKS) $(DOCS) tests/js/node_modules tests/console/node_modules tests/agents/node_modules $(NPM_PLACES) $(CONSOLE) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: requirements/dev.txt pyproject.toml .ci/venv
	@.ci/venv $(VENV) requirements/dev.txt

$(SERVE)/.ready: requirements/serve.txt pyproject.toml .ci/venv
	@.ci/venv $(SERVE) requirements/serve.txt

$(FRAMEWORKS)/.ready: requirements/frameworks.txt .ci/venv
	@.ci/venv $(FRAMEWORKS) requirements/frameworks.txt

$(DOCS)/.ready: requirements/docs.txt .ci/venv
	@.ci/venv $(DOCS) requirements/docs.txt

$(BENCH)/.ready: requirements/bench.txt pyproject.toml .ci/venv
	@.ci/venv $(BENCH) requirements/bench.txt

.helm/helm: requirements/helm/go.mod requirements/helm/go.sum
	@echo "Building Helm into .helm, once: two minutes or so …"
	@go build -C requirements/helm -mod=readonly -trimpath -ldflags='-s -w' -o ../../$@ helm.sh/helm/v3/cmd/helm

$(CONSOLE)/.ready: console/package-lock.json
	@command -v npm >/dev/null || { echo "error: npm was not found; it is needed to build the console" >&2; \
		echo "hint: install Node 20 or newer; the built page in the package works without it" >&2; exit 1; }
	@echo "Installing what builds the console into $(CONSOLE) …"
	@cd console && npm ci --no-progress --silent --ignore-scripts
	@touch $@

requirements/%/node_modules/.ready: requirements/%/package-lock.json
	@command -v npm >/dev/null || { echo "error: npm was not found; it is needed to install $*" >&2; \
		echo "hint: install Node 20 or 22, or leave it out: make conformance GATEWAYS='toolwire litellm llm-rosetta switchyard'" >&2; exit 1; }
	@echo "Installing $* into requirements/$*/node_modules …"
	@cd requirements/$* && npm ci --no-progress --ignore-scripts && npm run --silent --if-present finish
	@touch $@
