# make run      installs what a fresh Debian or Ubuntu needs, then measures the MPI example live
# make test     installs what the tests need, then runs the tests: some minutes on two cores
# make test-long   tests that take longer: more rounds of the randomised ones, Slurm, overflow checks, the model checker
# make bench    the benchmarks, each figure compared with a reference program or a limit. KEEP=1 writes them into the tables of bench/README.md
# make soak     hundreds of runs that are killed or disturbed, and a day's events, in half an hour;
#               with AMPERE_TEST_ROUNDS=20 AMPERE_TEST_DAY_SECONDS=3600 in some minutes
# make fuzz SECONDS=60 TARGETS="ring log"   hostile input, guided by coverage: this time for each target (default: all
#               targets). KEEP=1 adds the time to fuzz/hours.json
# make sanitize checks memory and threads with Miri, the sanitizers, valgrind and the model checker, as far as they are installed
# make cross    tests what depends on the processor for AArch64, under qemu, on Debian with another processor
# make install PREFIX=/opt/ampere
# make dist     target/release/dist/ampere-<version>-<machine>.tar.gz: the installation as a tree that can be unpacked anywhere
# make wheel    target/release/dist/ampere_energy-<version>-py3-none-manylinux_2_<glibc>_<machine>.whl: the installation and the module
#               ampere, for pip. It needs the C library that the build needs, or a newer one
# make packages ARCH=aarch64    target/packages: such a tarball and wheel, a .deb and an .rpm, for glibc 2.28 or a newer one, made on
#               Debian with an x86-64 processor (default: for x86-64). scripts/packages [aarch64] --test installs each of them into
#               a new Debian 11

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
EXAMPLE_SECONDS ?= 20
BIN = $(or $(CARGO_TARGET_DIR),target)/release
DIST = $(BIN)/dist
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Tarballs and wheels contain OTF2.
OTF2_LICENCE = $(wildcard /usr/share/doc/libopen-trace-format2-dev/copyright)
# scripts/packages sets these for programs of another machine.
MACHINE = $(shell uname -m)
STRIP = strip
# The program that writes manual pages and completions: any build that this machine can run.
AMPERE = $(BIN)/ampere
OTF2 = $$(ldd $(BIN)/ampere | awk '/otf2|open-trace-format2/ { print $$3 }')
INSTALL_PROGRAM = install -s --strip-program=$(STRIP) -m 755
NAME = ampere-$(VERSION)-$(MACHINE)

# Open MPI refuses to run as root unless both variables are set.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1

all: build

# Builds what a run needs. build-all adds the programs of the tests and benchmarks.
build:
	@scripts/need-packages build
	$(CARGO) build --release

build-all:
	@scripts/need-packages build mpi
	$(CARGO) build --release --workspace

examples/mpi/stencil: examples/mpi/stencil.c
	$(MAKE) -C examples/mpi

# This build leaves out what only reports need, because a first build takes some minutes.
run: example-packages examples/mpi/stencil
	$(CARGO) build --release --no-default-features
	$(BIN)/ampere run -- mpirun --oversubscribe -n 4 examples/mpi/stencil $(EXAMPLE_SECONDS)

example-packages:
	@scripts/need-packages build mpi

test:
	@scripts/need-packages build mpi test
	@scripts/run-tests

test-long:
	@scripts/need-packages build mpi test slurm
	@scripts/run-tests --long

# Clippy uses the release profile, so that build scripts and procedural macros are not compiled twice.
lint:
	@scripts/need-packages build
	$(CARGO) fmt --all --check
	@scripts/check-crates
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings

bench: build-all
	@scripts/need-packages bench
	$(CARGO) run --release --quiet --package ampere-bench

soak: build-all
	AMPERE_TEST_ROUNDS=$${AMPERE_TEST_ROUNDS:-500} AMPERE_TEST_DAY_SECONDS=$${AMPERE_TEST_DAY_SECONDS:-86400} \
	    $(CARGO) test --release --package ampere-tests --test random_moments --test day -- --nocapture --test-threads 1

SECONDS ?= 60

fuzz:
	@scripts/need-packages build test
	@SECONDS_EACH=$(SECONDS) TARGETS="$(TARGETS)" scripts/fuzz

sanitize: build-all
	@scripts/need-packages test
	@scripts/sanitize

cross:
	@scripts/cross

install: build
	$(MAKE) install-files
	@echo "Put $(PREFIX)/bin on the PATH, or use the module in $(PREFIX)/share/modulefiles; ampere doctor reports what a node has."

# Installs what was built before.
install-files:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/share/ampere/examples
	$(INSTALL_PROGRAM) $(BIN)/ampere $(BIN)/ampere-collector $(DESTDIR)$(PREFIX)/bin
	$(INSTALL_PROGRAM) $(BIN)/libampere_host.so $(DESTDIR)$(PREFIX)/lib
	@# LD_LIBRARY_PATH gets a directory with nothing but the plugin. The links in lib are for users who add lib to it.
	install -d $(DESTDIR)$(PREFIX)/lib/ampere-plugin
	$(INSTALL_PROGRAM) $(BIN)/libscorep_substrate_ampere.so $(DESTDIR)$(PREFIX)/lib/ampere-plugin
	ln -sf libscorep_substrate_ampere.so $(DESTDIR)$(PREFIX)/lib/ampere-plugin/libampere_plugin.so
	for name in libscorep_substrate_ampere.so libampere_plugin.so; do ln -sf ampere-plugin/$$name $(DESTDIR)$(PREFIX)/lib; done
	@# The host looks in its own directory for the libraries that see GPU kernels.
	for runtime in cuda hip opencl; do \
	    if [ -f $(BIN)/libampere_$$runtime.so ]; then $(INSTALL_PROGRAM) $(BIN)/libampere_$$runtime.so $(DESTDIR)$(PREFIX)/lib; fi; done
	cp -r $(BIN)/ampere-preload $(DESTDIR)$(PREFIX)/lib
	@# systemd needs the helper's path, which is known only if there is a prefix.
	if [ -n "$(PREFIX)" ]; then \
	    $(INSTALL_PROGRAM) $(BIN)/ampere-counter-helper $(DESTDIR)$(PREFIX)/lib; \
	    install -d $(DESTDIR)$(PREFIX)/lib/systemd/system; \
	    install -m 644 packaging/systemd/ampere-counters* $(DESTDIR)$(PREFIX)/lib/systemd/system; \
	    sed -i 's|/usr/lib/ampere|$(PREFIX)/lib/ampere|' $(DESTDIR)$(PREFIX)/lib/systemd/system/ampere-counters*; fi
	cp -r dashboards $(DESTDIR)$(PREFIX)/share/ampere/
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/share/ampere/interface
	install -m 644 interface/ampere.h $(DESTDIR)$(PREFIX)/include
	install -m 644 interface/ampere.f90 interface/ampere.py $(DESTDIR)$(PREFIX)/share/ampere/interface
	scripts/install-book $(DESTDIR)$(PREFIX)/share/ampere/docs
	$(AMPERE) shipped $(DESTDIR)$(PREFIX)/share/ampere
	@# Makes links in the directories in which man and the shells look for these files.
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	cd $(DESTDIR)$(PREFIX)/share/man/man1 && ln -sf ../../ampere/man/man1/*.1 .
	cd $(DESTDIR)$(PREFIX)/share && ln -sf ../../ampere/completions/ampere.bash bash-completion/completions/ampere
	cd $(DESTDIR)$(PREFIX)/share && ln -sf ../../ampere/completions/_ampere zsh/site-functions/_ampere
	cd $(DESTDIR)$(PREFIX)/share && ln -sf ../../ampere/completions/ampere.fish fish/vendor_completions.d/ampere.fish
	install -d $(DESTDIR)$(PREFIX)/share/ampere/examples/mpi $(DESTDIR)$(PREFIX)/share/ampere/examples/hip $(DESTDIR)$(PREFIX)/share/ampere/examples/cuda $(DESTDIR)$(PREFIX)/share/ampere/examples/regions
	install -m 644 examples/mpi/Makefile examples/mpi/*.c $(DESTDIR)$(PREFIX)/share/ampere/examples/mpi
	install -m 644 examples/hip/Makefile examples/hip/README.md examples/hip/*.cpp examples/hip/*.h $(DESTDIR)$(PREFIX)/share/ampere/examples/hip
	install -m 644 examples/cuda/Makefile examples/cuda/README.md examples/cuda/*.h $(DESTDIR)$(PREFIX)/share/ampere/examples/cuda
	install -m 644 examples/regions/Makefile examples/regions/regions.* $(DESTDIR)$(PREFIX)/share/ampere/examples/regions
	@# Environment Modules reads the file without a suffix, and Lmod prefers the one with the suffix .lua.
	install -d $(DESTDIR)$(PREFIX)/share/modulefiles/ampere
	install -m 644 packaging/modulefiles/ampere.lua $(DESTDIR)$(PREFIX)/share/modulefiles/ampere/$(VERSION).lua
	install -m 644 packaging/modulefiles/ampere.tcl $(DESTDIR)$(PREFIX)/share/modulefiles/ampere/$(VERSION)

# Makes a tree that works wherever it is unpacked, with the OTF2 library of the build.
dist: build
	rm -rf $(DIST)/$(NAME)
	$(MAKE) install-files PREFIX= DESTDIR=$(DIST)/$(NAME)
	echo $(OTF2) | xargs -r cp -L -t $(DIST)/$(NAME)/lib
	cp LICENSE LICENSE-APACHE LICENSE-MIT $(DIST)/$(NAME)
	$(if $(OTF2_LICENCE),cp $(OTF2_LICENCE) $(DIST)/$(NAME)/LICENSE-OTF2)
	tar -C $(DIST) -czf $(DIST)/$(NAME).tar.gz $(NAME)
	rm -r $(DIST)/$(NAME)
	@echo $(DIST)/$(NAME).tar.gz

# The programs find the libraries in `lib` next to `bin`, which are those of the environment that pip installs into.
wheel: build
	rm -rf $(DIST)/wheel
	$(MAKE) install-files PREFIX= DESTDIR=$(DIST)/wheel
	echo $(OTF2) | xargs -r cp -L -t $(DIST)/wheel/lib
	$(if $(OTF2_LICENCE),cp $(OTF2_LICENCE) $(DIST)/wheel/LICENSE-OTF2)
	python3 python/build-wheel $(VERSION) $(DIST)/wheel $(DIST) $(MACHINE)
	rm -r $(DIST)/wheel

packages:
	@scripts/need-packages build packages
	@scripts/packages $(ARCH)

clean:
	$(CARGO) clean
	$(MAKE) -C examples/mpi clean
	$(MAKE) -C examples/hip clean

.PHONY: all build build-all run example-packages test test-long lint bench soak fuzz sanitize cross install install-files dist wheel packages clean
