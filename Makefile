# make demo        set up and train PPO on CartPole, with live progress, a summary and plots
# make test        set up and run ruff, mypy and the tests
# make test-slow   learning checks that take minutes
# make perf        compare speed with Stable-Baselines3 and SBX, and write docs/PERFORMANCE.md
# make setup EXTRAS=dev,perf   more extras, e.g. for `python -m perf.growth`
PYTHON ?= python3
VENV   ?= .venv
EXTRAS ?= dev,search,envpool
PY     := $(VENV)/bin/python
STAMP   = $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
comma  := ,
# one thread each for two test processes; software rendering; no calls home
TEST_ENV = OMP_NUM_THREADS=1 SDL_VIDEODRIVER=dummy MUJOCO_GL=egl RAY_USAGE_STATS_ENABLED=0 HF_HUB_OFFLINE=1

.PHONY: setup demo test test-slow perf lint clean

setup: $(STAMP)

# the stamp is newer than what it was made from: a second call installs nothing
$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(MAKE) --no-print-directory install
	@touch $@

# uv is several times faster than pip but does not read pip's configuration: it is told where pip looks for local wheels.
# Where uv cannot be had or fails, plain pip does the same.
.PHONY: install
install:
	@links="$$($(PY) -m pip config get global.find-links 2>/dev/null || printf %s "$$PIP_FIND_LINKS")"; \
	if { command -v $(VENV)/bin/uv >/dev/null || $(PY) -m pip install -q --disable-pip-version-check uv 2>/dev/null; } && \
	   UV_FIND_LINKS="$$links" $(VENV)/bin/uv pip install -q --compile-bytecode --python $(PY) -c constraints.txt -e '.[$(EXTRAS)]'; \
	then echo "installed with uv"; \
	else $(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]' && echo "installed with pip"; fi

demo: $(STAMP)
	$(VENV)/bin/slm-lab run

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: lint
	$(TEST_ENV) $(PY) -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(STAMP)
	$(TEST_ENV) $(PY) -m pytest -m slow

perf:
	@$(MAKE) --no-print-directory setup EXTRAS=perf
	$(PY) -m perf

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
