# A thin front over cargo and CMake. `make` lists what there is.

BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# Cargo is looked for where rustup puts it, so that a shell which was open before still finds it.
export PATH := $(PATH):$(HOME)/.cargo/bin

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test lint header kernels gpu go install package package-check bench fuzz soak tsan mutants

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Install what is missing, build, and let the demo model answer two prompts
	@scripts/prerequisites.sh build
	@cmake -B $(BUILD) -DCMAKE_BUILD_TYPE=Release -DNANOVLLM_BUILD_TESTS=OFF >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)
	@echo
	@$(BUILD)/examples/generate --temperature 0 models/demo "list all prime numbers within 100" "introduce yourself"

test: ## Install what is missing, run all tests, and end with their counts
	@scripts/prerequisites.sh test
	@scripts/test.sh $(BUILD)

lint: ## Formatting, clippy, and the header against its source
	cargo fmt --check
	cargo clippy --release --all-targets -- -D warnings
	scripts/header.sh --check

header: ## Generate include/nanovllm.h from src/ffi, and what repeats it in bindings, docs and tests
	scripts/header.sh

kernels: ## Compile the CUDA kernels, with an nvcc from PyPI where there is none
	CUDA_HOME=$$(scripts/nvcc.sh $(BUILD)) NVLLM_CUDA=require cargo check --release --locked --lib

gpu: ## Build the tests and benches for a machine with a GPU; benches/gpu.sh runs them there
	CUDA_HOME=$$(scripts/nvcc.sh $(BUILD)) scripts/gpu_programs.sh $(BUILD)/gpu

go: ## Check the Go binding and server, with a Go from its module proxy where there is none
	scripts/go.sh $(BUILD)

package: ## Pack what is built into Debian packages under BUILD
	@test -e $(BUILD)/lib/libnanovllm.so || { echo "nothing is built yet: run make demo first"; exit 1; }
	cd $(BUILD) && cpack

package-check: ## Install the packages on a minimal Debian in a chroot, and build against them; as root
	@test -e $(BUILD)/lib/libnanovllm.so || { echo "nothing is built yet: run make demo first"; exit 1; }
	tests/package/clean_system.sh $(BUILD) .

install: ## Install library, header, pkg-config file and CMake package under PREFIX
	@test -e $(BUILD)/lib/libnanovllm.so || { echo "nothing is built yet: run make demo first"; exit 1; }
	cmake --install $(BUILD) --prefix $(PREFIX)
	@test -n "$(DESTDIR)" || test "$$(id -u)" != 0 || ldconfig

bench: ## Run the benchmarks
	cargo bench

fuzz: ## Run the long campaign of random and hostile inputs: about an hour; NVLLM_CAMPAIGN_SEED repeats one
	NVLLM_CAMPAIGN=$${NVLLM_CAMPAIGN:-long} cargo test --release --locked --test campaign

soak: ## Run a million requests with every option, and watch memory
	NVLLM_SOAK_REQUESTS=$${NVLLM_SOAK_REQUESTS:-1000000} cargo test --release --locked --test soak -- --nocapture

tsan: ## Run the C tests that use threads under ThreadSanitizer: some minutes
	scripts/tsan.sh $(BUILD)

mutants: ## Check that the tests notice each of a list of mistakes; MUTANTS="a b" names some: about a minute each
	scripts/mutants.sh $(MUTANTS)
