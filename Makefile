# Short names for common tasks, done by CMake. `make help` lists the targets.
PRESET ?= release
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# More jobs than processors, because tests mostly wait for leases and servers.
TEST_JOBS ?= $(shell expr 3 \* $(JOBS))
CTEST_ARGS ?=
# The length of a fuzz search in the gate; nightly ones take longer.
MINUTES ?= 0.25
BUILD := build/$(PRESET)

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
	@echo "  PRESET=release|debug|asan|tsan, CTEST_ARGS='-R name' for test, PREFIX=/usr/local for install"

all: deps ## build sluice and its tests
	@test -f $(BUILD)/build.ninja && grep -q SLUICE_TESTS:BOOL=ON $(BUILD)/CMakeCache.txt || cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) -j $(JOBS)

deps: ## install the Debian packages that are missing (with sudo when not root)
	@cmake/deps.sh

# With SERVER, only tests that start a server run: integration, clients, fault. The script reports how often they did.
test: all ## build and run all tests; SERVER=valkey (from PyPI) or SERVER=PROGRAM: those with a Redis, on that server
	$(if $(SERVER),tests/support/on_server.sh $(SERVER) )ctest --preset $(PRESET) $(if $(SERVER),-L 'integration|clients|fault' )-j $(TEST_JOBS) $(CTEST_ARGS)

fuzz: ## let libFuzzer search from the seeds of each target; MINUTES=n for each of them, 0.25 if nothing is said
	@cmake/deps.sh --fuzz
	@test -f build/fuzz/build.ninja || cmake --preset fuzz
	cmake --build --preset fuzz --target fuzzers -j $(JOBS)
	SLUICE_FUZZ_SECONDS=$$(awk 'BEGIN { printf "%.0f", 60 * $(MINUTES) }') ctest --preset fuzz -j $(JOBS)

fresh: ## the README's first commands on a fresh Debian 12 (as root; a root in build/fresh, a mirror, 1.5 GB)
	@cmake/deps.sh --fresh
	tests/package/fresh.sh

demo: ## start everything privately and search 2,000 package summaries; KEEP=1 leaves it running
	@cmake/deps.sh --demo
	@test -f build/release/build.ninja || cmake --preset release -DSLUICE_TESTS=OFF >/dev/null
	@cmake --build --preset release --target sluice
	@SLUICE=build/release/sluice /usr/bin/python3 tools/demo/demo.py

docs: ## write the table of counters into docs/operations.md
	/usr/bin/python3 -B tests/docs/tables.py

bench: all ## measure; docs/speed.md says what is measured and how
	tools/bench/bench.sh $(BUILD)

loaders: all ## run the code of docs/bulk.md that loads vectors into other programs (PyPI packages, 0.6 GB)
	tests/support/venv.sh build/venv-loaders tests/docs/requirements.txt
	build/venv-loaders/bin/python -B tests/docs/loaders.py $(BUILD)/sluice

soak: all ## a million requests of every kind while workers and Redis are killed; SOAK_ARGS='--minutes 10'
	SLUICE_BINARY=$(BUILD)/sluice PYTHONPATH=tests/support /usr/bin/python3 -B tests/soak/soak.py $(SOAK_ARGS)

containers: ## build the image, start docker-compose.yml, kill things in it (as root; minutes the first time); CUDA=ON: the one for GPUs, too
	@cmake/deps.sh --containers || true # what is missing then is said by the test that is left out
	@/usr/bin/python3 -B tests/containers/stack.py

monitoring: all ## config/monitoring with a real Prometheus and a daemon under load (unpacks Debian's package, 96 MB, into build)
	SLUICE_BINARY=$(BUILD)/sluice /usr/bin/python3 -B -W ignore::ResourceWarning tests/monitoring/monitoring.py

dashboard: all ## the dashboard in Chromium: every page, action and width; pictures in build/dashboard (packages, 300 MB)
	@cmake/deps.sh --dashboard
	SLUICE_BINARY=$(BUILD)/sluice /usr/bin/python3 -B -W ignore::ResourceWarning tests/dashboard/dashboard.py

install: ## install the build that is there, or build first, under PREFIX (DESTDIR is respected)
	@test -f $(BUILD)/build.ninja || { cmake/deps.sh --build && cmake --preset $(PRESET) -DSLUICE_TESTS=OFF; }
	cmake --build $(BUILD) --target sluice -j $(JOBS)
	cmake --install $(BUILD) --prefix $(PREFIX)

deb: ## build a Debian package, build/sluice_*.deb
	cmake/deps.sh --build
	cmake -S . -B build/deb -G Ninja -DCMAKE_BUILD_TYPE=Release
	cmake --build build/deb --target sluice -j $(JOBS)
	rm -f build/sluice_*.deb
	cd build/deb && cpack -G DEB -B ..

debcheck: deb ## lintian, and the package in a clean Debian 12: installed, started, purged (as root; minutes the first time)
	@cmake/deps.sh --package
	/usr/bin/python3 -B -W ignore::ResourceWarning tests/package/deb.py

lint: ## check the formatting, run clang-tidy (packages clang-format and clang-tidy)
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.inc')
	@test -f $(BUILD)/compile_commands.json || cmake --preset $(PRESET) >/dev/null
	@clang-tidy --quiet -p $(BUILD) $$(git ls-files 'src/*.c')

.PHONY: help all deps test fuzz fresh demo docs bench loaders soak containers monitoring dashboard install deb debcheck lint
.DEFAULT_GOAL := help
