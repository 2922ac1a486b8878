#!/usr/bin/env bash
# From a graph to predictions on the nodes of a SLURM cluster: eigenpairs by SLEPc, then training and prediction by torchrun.
#
#   sbatch examples/slurm_train.sh graph.npz 2000 run
#
#SBATCH --job-name=specformer
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=4G
#SBATCH --time=12:00:00
set -euo pipefail

graph=${1:?which graph: an .npz file, or a folder with edges.csv}
pairs=${2:?how many eigenpairs, as the recipe takes them}
run=${3:?folder for the run}

# Everything that processes exchange by files lies where all nodes see it.
shared=${SCRATCH:-$SLURM_SUBMIT_DIR}
TMPDIR=$(mktemp -d "$shared/specformer-$SLURM_JOB_ID.XXXX")
export TMPDIR OMP_NUM_THREADS=1
trap 'rm -rf "$TMPDIR"' EXIT

specformer spectrum "$graph" --k "$pairs" --solver slepc --ranks "$SLURM_NTASKS" --device cpu \
  --cache "$shared/spectra" --out "$shared/spectra/rows-$SLURM_JOB_ID/"

# One torchrun on each machine; the first machine is where all meet. With GPUs: --nproc-per-node "$SLURM_GPUS_ON_NODE",
# and --device cuda instead of cpu.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
together() {
  srun --ntasks-per-node=1 --cpus-per-task="$SLURM_NTASKS_PER_NODE" \
    torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$SLURM_NTASKS_PER_NODE" \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:29500" -m specformer "$@"
}
together train "$graph" --set k="$pairs" --cache "$shared/spectra" --device cpu --out "$run"
together predict "$run" --cache "$shared/spectra" --device cpu --out "$run/predictions.csv"
