# Two commands do everything: `make demo` and `make test`. Each sets up what it needs in .venv.

PYTHON ?= python3
# Bytecode is kept whatever the environment says: rewriting the tests' assertions takes most of the time to collect them.
export PYTHONDONTWRITEBYTECODE =
BIN := .venv/bin
INSTALL := pip --disable-pip-version-check --quiet install
PIP := $(BIN)/$(INSTALL) --constraint constraints.txt
PACKAGES := fsl_async transport parties
# What `pip install --no-compile` leaves out, on all cores, without the packages' own tests and what we hardly load of them.
SELDOM := /(tests?|setuptools|pkg_resources|debugpy|mpmath|moto/(?!core|s3/|moto_api|utilities)[a-z0-9_]+)/
BYTECODE := $(BIN)/python -m compileall -qq -j 0 -x '$(SELDOM)' .venv/lib $(PACKAGES) || true
SOURCES := $(PACKAGES) tests examples docs

SEEDS ?= 2000
RUNS ?= 1000000
# Two more than there are processors: some tests wait for processes, browsers and clocks.
WORKERS ?= $(shell expr 2 + $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))
SPREAD := -n $(WORKERS) --dist worksteal
# Left out of test-fast: kernels on every instruction set, browsers, sockets that wait, and many rounds in one test.
LONG := tests/fsl_async/kernels/% tests/fsl_async/costs/% $(addprefix tests/fsl_async/test_,bin_count.py end_to_end.py \
	model_numbers.py own_packages.py plain_union_rounds.py property_primitives.py) \
	tests/fsl_async/learning/test_without_torch.py tests/fsl_async/privacy/test_sampler.py \
	$(addprefix tests/fsl_async/server/test_,bounded_updates.py slicing.py) \
	$(addprefix tests/fsl_async/protocols/test_,partials.py transitions.py two_servers.py) \
	$(addprefix tests/transport/test_,pace.py tampering.py) $(addprefix tests/parties/client/test_,bad_input.py blocking.py interrupted_calls.py reconnect.py) \
	$(addprefix tests/parties/server/,clients/test_overload.py clients/test_silence.py peer/test_link.py \
	peer/test_reconciliation.py round/test_sample.py test_rounds.py test_several_tasks.py \
	test_harmed_blobs.py test_noise.py test_restart.py test_server_rules.py) \
	$(addprefix tests/parties/operator/test_,alerts.py log_under_load.py page.py real_server.py) \
	$(addprefix tests/parties/storage/test_,full_disk.py sqlite_store.py)
# Where more tries tell more.
ENDLESS := tests/fsl_async/bounds/test_many_updates.py tests/fsl_async/client/test_wrong_answers.py \
	tests/parties/server/test_restart.py tests/fsl_async/protocols/test_transitions.py tests/transport/test_tampering.py
FAST := $(filter-out $(LONG),$(wildcard tests/fsl_async/test_*.py tests/fsl_async/*/test_*.py tests/transport/test_*.py \
	$(addprefix tests/parties/,$(addsuffix /test_*.py,client files identity operator server server/* settings storage))))

.PHONY: demo test test-all test-fast learn security hosts soak simulate reach fuzz lint docs bench secagg paper browser \
	hashes release clean

# The pip that comes with an old Python takes three times as long to find what fits together; it does for whoever has no other.
.venv/python:
	$(PYTHON) -m venv .venv
	-$(PIP) --no-compile pip
	touch $@

.venv/demo: .venv/python pyproject.toml constraints.txt
	$(PIP) --no-compile --editable .[server]
	$(BYTECODE)
	touch $@

# All that .venv/demo has, and more: in one go, for each installation builds the package and resolves anew.
.venv/test: .venv/python pyproject.toml constraints.txt
	$(PIP) --no-compile --editable .[server,test]
	$(BYTECODE)
	touch .venv/demo $@

.venv/lint: .venv/test
	$(PIP) --editable .[test,lint]
	touch $@

# Where there is no atheris for this Python or system, this installs nothing and the command says so.
.venv/fuzz: .venv/test
	$(PIP) --editable .[test,fuzz]
	touch $@

.venv/docs: .venv/demo
	$(PIP) --editable .[server,docs]
	touch $@

.venv/learn: .venv/test
	$(PIP) --editable .[test,torch]
	touch $@

.venv/bench: .venv/demo
	$(PIP) --editable .[server,plot]
	touch $@

.venv/paper: .venv/demo
	$(PIP) --editable .[server,torch,plot]
	touch $@

# Flower's environment goes without constraints.txt: it requires older releases of what is pinned there.
.venv-flower/ready: pyproject.toml
	$(PYTHON) -m venv .venv-flower
	-.venv-flower/bin/$(INSTALL) --no-compile --constraint constraints.txt pip
	.venv-flower/bin/$(INSTALL) --editable .[server,flower] 'flwr[simulation]==1.41.0' torch==2.13.0 \
		pytest pytest-timeout pytest-trio pytest-xdist hypothesis
	touch $@

demo: .venv/demo
	$(BIN)/fsl-async demo

test: .venv/test
	$(BIN)/python -m pytest $(SPREAD) -m "not slow"

# What `make test` runs and the slow tests, and those of Hypothesis with more examples: all at once, collected once.
test-all: .venv/test
	$(BIN)/python -m pytest $(SPREAD) --hypothesis-profile=thorough

# For the loop of an edit: every module by itself, on one kernel; no processes, no worlds.
test-fast: .venv/test
	$(BIN)/python -m pytest $(SPREAD) -m "not slow" $(FAST)

# What trains needs more than the rest: its tests are skipped where that is missing. These are the ones, and no others.
learn: .venv/learn .venv-flower/ready
	$(BIN)/python -m pytest $(SPREAD) tests/fsl_async/learning/pytorch tests/fsl_async/learning/test_without_torch.py \
		$(addprefix tests/examples/paper/accuracy/test_,cells.py learning.py) tests/test_notebook.py \
		tests/test_learning_page.py tests/test_secrets.py
	.venv-flower/bin/python -m pytest $(SPREAD) tests/parties/flower tests/examples/test_secaggplus.py tests/test_secrets.py

security: .venv/test
	$(BIN)/python -m tests.system.security.trials --trials 20000
	$(BIN)/python -m tests.system.security.guards
	MANY=10 $(BIN)/python -m pytest $(SPREAD) --timeout=0 -o faulthandler_timeout=0 $(ENDLESS)

hosts: .venv/test
	TEST_ON_HOSTS=1 $(BIN)/python -m pytest tests/system/deployment

soak: .venv/test
	$(BIN)/python -m tests.system.soak

simulate: .venv/test
	$(BIN)/python -m tests.system.simulation --seeds $(SEEDS)

reach: .venv/test
	$(BIN)/python -m tests.system.simulation --reach

fuzz: .venv/fuzz
	$(BIN)/python -m tests.system.fuzzing --runs $(RUNS)

lint: .venv/lint
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house

docs: .venv/docs
	$(BIN)/python docs/generate_machines.py
	$(BIN)/python docs/generate_wire_vectors.py
	$(BIN)/python docs/generate_wire_refusals.py
	$(BIN)/python docs/generate_bound_vectors.py
	$(BIN)/python docs/generate_configuration.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# SecAgg+ runs in an environment of its own, because what flwr requires and what we require do not fit together.
secagg: .venv/demo .venv-flower/ready
	$(BIN)/python -m examples.secagg

# Goes on where it was killed; what was computed before stays. NAMES computes some of it: make paper NAMES=table-3
paper: .venv/paper
	$(BIN)/python -m examples.paper $(if $(NAMES),--only $(NAMES))

# The only thing that needs npm: the page of examples/browser, into its dist/. Without it, its tests are skipped.
examples/browser/node_modules/ready: examples/browser/package.json
	cd examples/browser && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	touch $@

browser: examples/browser/node_modules/ready
	cd examples/browser && npm run --silent build

bench: .venv/bench
	$(BIN)/python -m tests.bench all --write docs/benchmarks

# Asks pip's registry for every wheel of what is needed, on each Python and processor.
hashes: .venv/test
	$(BIN)/python docs/generate_hashes.py

# Needs no network. KEY signs it: make release KEY=~/.ssh/release
release: .venv/test
	$(BIN)/python docs/make_release.py $(KEY)

clean:
	rm -rf .venv .venv-flower site examples/browser/node_modules examples/browser/dist
