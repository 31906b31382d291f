#!/bin/sh
# One model on several processes of this host, started by torchrun.
#   run.sh PROCESSES NANOVLLM COMMAND...
#   run.sh 2 build/bin/nanovllm generate models/demo "list all prime numbers within 100"
#
# On several hosts, start the torchrun line on each of them, with --nnodes, --node-rank and --master-addr.
set -eu
processes=$1
shift
tool=$1
shift
exec torchrun --standalone --no-python --nproc-per-node "$processes" "$tool" --device cpu --distributed "$@"
