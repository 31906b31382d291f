#!/bin/sh
# Writes the table of models in docs/models.md from src/model/families. The test of the same name compares them.
set -eu
cd "$(dirname "$0")/.."
NVLLM_WRITE_MODELS=1 cargo test --package nanovllm-model --locked --lib -- --quiet the_page_of_models_lists_the_classes_that_open
