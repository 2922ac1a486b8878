#!/usr/bin/env bash
# Eigenpairs of a large graph on the nodes of a SLURM cluster:
#
#   sbatch examples/slurm_spectrum.sh graph.npz 2000 spectrum.safetensors
#
#SBATCH --job-name=spectrum
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=16
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=4G
#SBATCH --time=04:00:00
set -euo pipefail

graph=${1:?which graph: an .npz file, or a folder with edges.csv}
pairs=${2:?how many eigenpairs: 2000 smallest, or 2000,500 for both ends}
result=${3:?where to save them: a .safetensors file}

# The ranks exchange files with the program that starts them: their folder must be on a file system that all nodes see.
TMPDIR=$(mktemp -d "${SCRATCH:-$SLURM_SUBMIT_DIR}/spectrum-$SLURM_JOB_ID.XXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

# On your cluster these may come from modules:
#   module load openmpi petsc slepc
#   export SPECFORMER_MPI_PYTHON=$HOME/slepc-env/bin/python

# One process here, on the first node; mpirun starts the ranks on all nodes of the job.
specformer spectrum "$graph" --k "$pairs" --solver slepc --ranks "$SLURM_NTASKS" --device cpu --out "$result"
