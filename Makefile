# Three commands, each sets up what it needs: `make demo`, `make test`, `make lint`.
# Options of the demo go into ARGS: make demo ARGS="--class-set uro --steps 8000".
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/installed-experiments
DEV := .venv/installed-dev
INPUTS := pyproject.toml constraints.txt

.PHONY: demo test lint fonts clean

demo: $(DEMO) fonts
	$(BIN)/labelmapping demo $(ARGS)

test: $(DEV) fonts
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

fonts:
	@bash scripts/install_fonts.sh

.venv/pyvenv.cfg:
	bash scripts/make_environment.sh $(PYTHON)

$(DEMO): .venv/pyvenv.cfg $(INPUTS)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[experiments]'
	@touch $@

$(DEV): .venv/pyvenv.cfg $(INPUTS)
	$(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[all,dev]'
	@touch $@

clean:
	rm -rf .venv build dist runs
