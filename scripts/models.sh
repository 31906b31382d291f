#!/bin/sh
# Writes the table of models in README.md from src/model/families. The test of the same name compares them.
set -eu
cd "$(dirname "$0")/.."
NVLLM_WRITE_README=1 cargo test --release --locked --lib -- --quiet the_readme_lists_the_classes_that_open
