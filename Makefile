# Short commands for cargo and CMake. `make` lists the targets.

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# rustup installs cargo here. A shell that was open before the installation does not have it in PATH.
ifeq ($(findstring /.cargo/bin,$(PATH)),)
export PATH := $(PATH):$(HOME)/.cargo/bin
endif
# Kernels that were compiled once outlive a build folder. Empty is no cache.
export NVLLM_KERNEL_CACHE ?= $(HOME)/.cache/nanovllm/kernels

# What the wheels for other systems are made of.
archives = $(filter-out %-debug.tar.gz, $(wildcard $(BUILD)/linux/*.tar.gz $(BUILD)/linux-arm64/*.tar.gz $(BUILD)/windows/*.zip))

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test lint docs header kernels gpu go python wheels csharp godot engine-packages install package package-check release-linux windows arm64 bench fuzz soak tsan mutants

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Install what is missing, build, and run the demo model on two prompts
	@scripts/prerequisites.sh build
	@cmake -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_TESTS=OFF >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@echo
	@$(BUILD)/examples/generate --temperature 0 models/demo "list all prime numbers within 100" "introduce yourself"

test: ## Install what is missing, run all tests, and print their counts
	@scripts/prerequisites.sh test
	@scripts/test.sh $(BUILD)

lint: ## Check the formatting, clippy, that the generated files are up to date, the versions of packages, and the links and names of docs
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/header.sh --check
	scripts/rust_api.sh --check
	scripts/versions.sh
	scripts/docs_check.sh
	scripts/plans_check.sh

docs: ## Build the site of README and docs into BUILD/docs with mdBook, which is installed if there is none, and check its links
	scripts/docs.sh $(BUILD)

header: ## Generate include/nanovllm.h from src/capi, and the files in bindings, docs and tests that repeat it
	scripts/header.sh

kernels: ## Compile the CUDA kernels into target/kernels, where development builds read them, with nvcc from PyPI if there is none
	CUDA_HOME=$$(scripts/nvcc.sh $(BUILD)) cargo run --locked --quiet --package nanovllm-kernels --bin compile_kernels -- target/kernels

gpu: ## Build the tests and benches for a machine with a GPU, where benches/gpu.sh runs them
	scripts/gpu_programs.sh $(BUILD)/gpu "$$(scripts/nvcc.sh $(BUILD))"

go: ## Check the Go binding and server, with Go from its module proxy if there is none
	scripts/go.sh $(BUILD)

python: ## Build a Python wheel with the library inside, and run its tests in an environment of its own
	scripts/python.sh $(BUILD)

wheels: ## Make Python wheels of the archives that release-linux, arm64 and windows have built, in BUILD/wheels
	@test -n "$(archives)" || { echo "there is no archive under $(BUILD): run make release-linux, make arm64 or make windows first"; exit 1; }
	@for archive in $(archives); do scripts/wheel.sh "$$archive" $(BUILD)/wheels || exit; done

csharp: ## Compile the C# binding with Mono, and run its tests
	scripts/csharp.sh $(BUILD)

godot: ## Compile the extension for Godot 4, and run its demo and tests without a window, with Debian's Godot if there is none
	scripts/godot.sh $(BUILD)

engine-packages: ## Build the packages for NuGet, Unity and Godot with the libraries inside, and use each
	scripts/packages.sh $(BUILD)

package: ## Build Debian packages under BUILD
	@test -e $(BUILD)/lib/libnanovllm.so || { echo "nothing is built yet: run make demo first"; exit 1; }
	scripts/deb.sh $(BUILD) $(BUILD)

package-check: ## As root: install the packages in a minimal Debian chroot, and build a program with them
	@test -e $(BUILD)/lib/libnanovllm.so || { echo "nothing is built yet: run make demo first"; exit 1; }
	tests/package/clean_system.sh $(BUILD) .

release-linux: ## Build an archive for every Linux with glibc 2.28 or later, with zig from PyPI, and check what it needs
	scripts/release.sh linux $(BUILD)

windows: ## Build a zip for Windows x64 with MinGW and zig from PyPI, and check what it exports and needs
	scripts/release.sh windows $(BUILD)

arm64: ## Build the library, Debian packages and an archive for Linux on ARM64, and test them with QEMU as several processors
	scripts/arm64.sh all $(BUILD)

install: ## Install the library, the header, the pkg-config file and the CMake package under PREFIX
	@test -e $(BUILD)/lib/libnanovllm.so || { echo "nothing is built yet: run make demo first"; exit 1; }
	cmake --install $(BUILD) --prefix $(PREFIX)
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig

bench: ## Run the benchmarks
	cargo bench

fuzz: ## Run the long campaign of random and hostile inputs, about an hour; NVLLM_CAMPAIGN_SEED repeats a campaign
	NVLLM_CAMPAIGN=$${NVLLM_CAMPAIGN:-long} cargo test --release --locked --test campaign

soak: ## Run a million requests with every option, and check that memory use stays constant
	NVLLM_SOAK_REQUESTS=$${NVLLM_SOAK_REQUESTS:-1000000} cargo test --release --locked --test soak -- --nocapture

tsan: ## Run the C tests that use threads under ThreadSanitizer; takes some minutes
	scripts/tsan.sh $(BUILD)

mutants: ## Check that the tests notice each of a list of mistakes; MUTANTS="a b" names some: about a minute each
	scripts/mutants.sh $(MUTANTS)
