#!/bin/sh
# The program in several processes: what each launcher says in the environment, and the answer that one process gives.
#   distributed.sh NANOVLLM MODEL_FOLDER
set -eu
tool=$1 model=$2
failures=0
fails() {
    echo "distributed.sh: $1" >&2
    failures=$((failures + 1))
}
wants() { # NAME PATTERN TEXT
    printf '%s\n' "$3" | grep -q -- "$2" || fails "$1: no $2 in: $3"
}
place() { # VARIABLE=VALUE...
    env -i "$@" "$tool" --distributed place 2>&1 || true
}

wants "torchrun, first" "^process 0 of 2 meets the others at 0.0.0.0:29511 (torchrun)$" \
    "$(place RANK=0 WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29510)"
wants "torchrun, second" "^process 1 of 2 meets the others at node0:29511 (torchrun)$" \
    "$(place RANK=1 WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29510 SLURM_PROCID=7 SLURM_NTASKS=9)"
wants "torchrun, one host" "^process 0 of 2 meets the others at localhost:29511 (torchrun)$" \
    "$(place RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29510)"
wants "torchrun, IPv6" "^process 1 of 2 meets the others at \[fd00::1\]:29511 (torchrun)$" \
    "$(place RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=29510)"
wants "Open MPI" "^process 3 of 4 meets the others at 127.0.0.1:29501 (Open MPI)$" \
    "$(place OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4)"
wants "Open MPI, two hosts" "Open MPI does not say where process 0 runs: use --rendezvous" \
    "$(place OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2)"
for list in "node[03-05,7],other" "node03,node04" "node[03,05]" "node03"; do
    wants "Slurm, $list" "^process 1 of 3 meets the others at node03:29501 (Slurm)$" \
        "$(place SLURM_PROCID=1 SLURM_NTASKS=3 "SLURM_STEP_NODELIST=$list" SLURM_JOB_NODELIST=wrong)"
done
wants "LeaderWorkerSet" "^process 1 of 2 meets the others at nanovllm-0.nanovllm.default:29501 (LeaderWorkerSet)$" \
    "$(place LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=nanovllm-0.nanovllm.default)"
for port in 0 65535 4294967295 http; do
    wants "torchrun, port $port" "^error: --distributed: MASTER_PORT is \"$port\": a number from 1 to 65534 is wanted$" \
        "$(place RANK=1 WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=$port)"
done
wants "torchrun, rank" "^error: --distributed: RANK is \"2\": a number from 0 to 1 is wanted$" \
    "$(place RANK=2 WORLD_SIZE=2 MASTER_ADDR=node0)"
wants "Slurm, size" "^error: --distributed: SLURM_NTASKS is \"0\": a number from 1 to " "$(place SLURM_PROCID=0 SLURM_NTASKS=0)"
wants "nobody" "no variables of torchrun, Open MPI, Slurm or LeaderWorkerSet" "$(place HOME=/)"

# The same command line in every process. The answer is that of one.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
question="list all prime numbers within 100"
wanted=$("$tool" generate --temperature 0 "$model" "$question" 2>/dev/null)
run() { # INDEX OPTION...
    index=$1
    shift
    "$tool" --device cpu --num-processes 2 --process-index "$index" --rendezvous "unix:$folder/rendezvous" "$@"
}
run 1 --tensor-parallel-size 4 worker "$model" >"$folder/follower" 2>&1 &
found=$(run 0 --tensor-parallel-size 4 generate --temperature 0 "$model" "$question" 2>/dev/null) || fails "generate in two processes"
wait $! || fails "a worker: $(cat "$folder/follower")"
test "$found" = "$wanted" || fails "two processes say '$found', one says '$wanted'"

port=$((20000 + $$ % 20000))
started="MASTER_ADDR=127.0.0.1 MASTER_PORT=$port WORLD_SIZE=2"
env $started RANK=1 "$tool" --device cpu --distributed generate --temperature 0 "$model" "$question" >"$folder/follower" 2>&1 &
found=$(env $started RANK=0 "$tool" --device cpu --distributed generate --temperature 0 "$model" "$question" 2>/dev/null) ||
    fails "generate as torchrun starts it"
wait $! || fails "a follower: $(cat "$folder/follower")"
test "$found" = "$wanted" || fails "torchrun's processes say '$found', one says '$wanted'"
test -s "$folder/follower" && fails "a follower says: $(cat "$folder/follower")"

found=$("$tool" --device cpu --kv-cache-dtype int8 generate --temperature 0 "$model" "$question") || fails "generate with int8"
test "$found" = "$wanted" || fails "with keys and values in int8 it says '$found', else '$wanted'"
said=$("$tool" --kv-cache-dtype int4 version 2>&1) && fails "an unknown KV cache is no failure"
wants "an unknown KV cache" "'int4' for '--kv-cache-dtype <TYPE>'" "$said"
said=$("$tool" --process-index 0 worker "$model" 2>&1) && fails "a worker that leads is no failure"
wants "a worker that leads" "nanovllm worker MODEL. needs --num-processes, --rendezvous, and a --process-index above 0" "$said"
said=$("$tool" --num-processes 2 --process-index 5 --rendezvous h:1 place 2>&1) && fails "process 5 of 2 is no failure"
wants "process 5 of 2" "^error: this is process 5 of 2: an index from 0 to 1 is wanted$" "$said"
said=$("$tool" --num-processes 2 place 2>&1) && fails "two processes without a rendezvous are no failure"
wants "two processes without a rendezvous" "^error: --rendezvous is wanted with 2 processes" "$said"
for list in "0," ",0" "0,,1" "-1" "" ","; do
    said=$("$tool" --devices "$list" place 2>&1) && fails "--devices $list is no failure"
    wants "--devices $list" "for '--devices <I,J,...>': indices of GPUs with commas between them are wanted" "$said"
done
"$tool" --devices 0,1 place >"$folder/said" || fails "--devices 0,1 is refused"
said=$("$tool" --processes 2 version 2>&1) && fails "an unknown option is no failure"
wants "an unknown option" "unexpected argument '--processes'" "$said"

exit "$failures"
