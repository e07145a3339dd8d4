# The two commands: `make demo` shows everything on a fleet of this machine's own, `make test` proves it.
#   make demo RATE=1gbit DELAY=5ms HOSTS=4      make demo YES=1   (do not ask before installing packages)
SHELL := /bin/bash
HOSTS ?= 4
RATE ?=
DELAY ?=
YES ?=
SECONDS ?= 600
EVENTS ?=
# tests wait for hosts as long as they compute: four processes on two cores; whole files, since tests of one file share hosts
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder

# what the tool writes stays inside the checkout: .state (removed by clean) and .cache (wheels, kept)
export XDG_STATE_HOME := $(CURDIR)/.state
export XDG_CACHE_HOME := $(CURDIR)/.cache
export XDG_CONFIG_HOME := $(CURDIR)/.state/config
export ANSIBLE_HOME := $(CURDIR)/.state/ansible
# each of some hundred programs that tests start would compile all modules anew
unexport PYTHONDONTWRITEBYTECODE

# what runs on the operator's machine uses no name that a Mac's Python lacks; nodes, and machines with a lab, have Linux
MYPY_MAC := .venv/bin/mypy --platform darwin --cache-dir .mypy_cache/darwin --follow-imports silent --exclude '^nodectl/(payload|lab|workloads)/'
# nor a file of Linux's kernel, a locale that a Mac has not, or a name of Linux's that mypy cannot see in a getattr
OF_LINUX := (Path|open|scandir|listdir|glob)[(]f?"/(proc|sys|dev/shm)|"C[.]UTF-8"|(os[.]|signal[.]|getattr[(].*")(pidfd_|fork\>|sched_[gs]etaffinity|eventfd|memfd_create|setns|unshare)

LINTERS := lint-mypy lint-ansible lint-rest

.PHONY: gpu-day $(LINTERS) collect build-site wheels nvidia-smi help demo dist docs site test test-all test-pages test-booted sanity faults chaos lint setup clean distclean
help:
	@sed -n '1,2p' Makefile; echo "targets: demo dist gpu-day docs nvidia-smi site test test-all test-pages test-booted sanity faults chaos lint setup clean distclean"

setup:
	@scripts/setup.sh $(if $(YES),--yes)

demo: setup
	@.venv/bin/python scripts/demo.py --hosts $(HOSTS) $(if $(RATE),--rate $(RATE)) $(if $(DELAY),--delay $(DELAY))

# two at a time: mypy and ansible-lint each keep one core busy for long
lint: setup
	@$(MAKE) --no-print-directory -j2 --output-sync=target $(LINTERS) collect

lint-mypy:
	.venv/bin/mypy
	$(MYPY_MAC) nodectl plugins/action plugins/lookup

lint-ansible:
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/python scripts/lint_ansible.py --profile production --offline
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/ansible-playbook --syntax-check playbooks/*.yml

lint-rest:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	! git grep --untracked -nE '$(OF_LINUX)' -- nodectl plugins/action plugins/lookup ':!nodectl/payload' ':!nodectl/lab' ':!nodectl/workloads' ':!nodectl/common/process.py'
	.venv/bin/python scripts/docs.py --check
	.venv/bin/python scripts/role_readmes.py --check
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/yamllint --strict .

# each test can be collected; the processes that run them then find their bytecode
collect:
	.venv/bin/pytest --collect-only -qq >/dev/null || .venv/bin/pytest --collect-only -qq

# PyTorch for the lab's hosts
wheels:
	.venv/bin/python -m nodectl.provision.wheels

# NVIDIA's nvidia-smi of two drivers and nvml.h, into .cache: the lab's hosts then have it on top of a simulated NVML
nvidia-smi:
	.venv/bin/python -m scripts.nvml

# the tables of docs/ and the roles' READMEs, from what the code declares
docs: setup
	.venv/bin/python scripts/docs.py
	.venv/bin/python scripts/role_readmes.py

# the documentation, to be opened at .state/site/index.html; a page or link that is missing fails it
site: setup
	@$(MAKE) --no-print-directory build-site

# not --quiet: warnings that are not shown are not counted, and --strict would let all of them pass
build-site:
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --strict

# mypy first, since a test reads its cache; other linters take what the tests leave of the processors, and speak last
test: setup
	-@$(MAKE) --no-print-directory nvidia-smi
	@$(MAKE) --no-print-directory -j2 --output-sync=target wheels lint-mypy collect build-site
	@mkdir -p .state && { nice -n 19 make --no-print-directory lint-ansible lint-rest >.state/lint.txt 2>&1 & linters=$$!; \
	set -x; .venv/bin/pytest --basetemp=.state/pytest-tmp -m "not slow" $(PARALLEL); tests=$$?; { set +x; } 2>/dev/null; \
	wait $$linters; lint=$$?; cat .state/lint.txt; exit $$((tests ? tests : lint)); }

# boots Debian in containers and emulated machines; installs what that needs (docs/testing.md)
test-booted:
	@scripts/setup.sh --booted $(if $(YES),--yes)
	@$(MAKE) --no-print-directory wheels
	.venv/bin/pytest --basetemp=.state/pytest-tmp -m booted tests/booted

test-all: setup
	-@scripts/setup.sh --booted $(if $(YES),--yes)
	@$(MAKE) --no-print-directory -j2 --output-sync=target wheels $(LINTERS) collect build-site
	NODECTL_TESTS_START=1 .venv/bin/pytest --basetemp=.state/pytest-tmp

# docs/start and docs/how-to to the letter, the long ones too (docs/testing.md); one alone: python -m tests.pages PAGE
test-pages: setup
	@$(MAKE) --no-print-directory wheels
	.venv/bin/pytest --basetemp=.state/pytest-tmp tests/pages

# a folder to carry to a machine with GPUs and no network, where `bash gpu_day.sh` says all that can be told there
gpu-day: setup
	scripts/gpu_day.sh fill .state/gpu-day

# what is published, into dist/: wheel, sdist, the collection, a list of what is in it, digests (CONTRIBUTING.md)
dist: setup
	@.venv/bin/python -m scripts.dist

# ansible-test's own tests of the collection, as it is built and installed; skipped where no package index answers
sanity: setup
	scripts/sanity.sh

# every kind of fault on one of eight hosts: which check sees it, and that no other host is blamed (docs/faults.md)
faults: setup
	.venv/bin/python scripts/faults.py --write-docs

# every event in every phase of a job (docs/testing.md); make chaos EVENTS=rank-killed,link-cut: these alone
chaos: setup
	@$(MAKE) --no-print-directory wheels
	.venv/bin/python -m scripts.chaos $(if $(EVENTS),--events $(EVENTS))

clean:
	-[ ! -x .venv/bin/nodectl ] || .venv/bin/nodectl lab down
	-[ ! -x .venv/bin/python ] || .venv/bin/python -m tests.booted down
	rm -rf .state dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .ansible
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .cache nodectl/_version.py
