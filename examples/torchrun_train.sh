#!/usr/bin/env bash
# Training and prediction on several machines without a scheduler, or with any. Start the same line on every machine:
#
#   FIRST=node1 MACHINES=4 PROCESSES=16 bash examples/torchrun_train.sh graph.npz run --set k=2000
#
# FIRST is the name of one of them. The graph, the cache (CACHE) and the run folder lie where all machines see them.
set -euo pipefail

graph=${1:?which graph: an .npz file, or a folder of parts}
run=${2:?folder for the run}
device=${DEVICE:-cpu} # cuda: PROCESSES is then the number of GPUs of a machine
cache=${CACHE:-spectra}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

together() {
  torchrun --nnodes "${MACHINES:?how many machines}" --nproc-per-node "${PROCESSES:?how many processes on each}" \
    --rdzv-backend c10d --rdzv-id "$run-$1" --rdzv-endpoint "${FIRST:?name of the first machine}:29500" -m specformer "$@"
}
together train "$graph" --cache "$cache" --device "$device" --out "$run" "${@:3}"
together predict "$run" --cache "$cache" --device "$device" --out "$run/predictions.csv"
