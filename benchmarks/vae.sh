#!/bin/sh
# Train and evaluate the autoencoders of the tables in results/vae, one after the other on one core, into runs/vae.
# PATHGRAD_DATA says where the images are. A run that exists is continued where it stopped.
# CLOCK=cpu counts CPU seconds of training, for a core that other programs use too.
# `python -m benchmarks.record_run runs/vae/* --out results/vae/runs` writes the records.
set -eu
cd "$(dirname "$0")/.."
OUT=runs/vae
PATHGRAD=.venv/bin/pathgrad
[ "${CLOCK:-wall}" = wall ] || PATHGRAD=".venv/bin/python -m benchmarks.cpu_clock"
CORE=${CORE:-1}
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 # large memory pages make steps faster

train() { # train NAME OPTIONS...
    run=$OUT/$1
    shift
    if [ -e "$run/config.toml" ]; then
        taskset -c "$CORE" $PATHGRAD train vae --resume --out "$run"
    else
        taskset -c "$CORE" $PATHGRAD train vae --out "$run" "$@"
    fi
    taskset -c "$CORE" $PATHGRAD evaluate "$run" --refine 4
}

case ${1:-} in
cpu) # cpu DATASET MINUTES GRADIENT SEED: the preset for a CPU
    train "cpu$3-$2-$4-s$5" --dataset "$2" --max-seconds $(($3 * 60)) --estimator "$4" --seed "$5"
    ;;
nll) # nll NAME IMAGES: the likelihoods of test images too, of a run that is trained
    taskset -c "$CORE" $PATHGRAD evaluate "$OUT/$2" --refine 4 --nll-images "$3"
    ;;
plain) # plain DATASET MINUTES GRADIENT SEED: the same without augmentation
    train "cpu$3-$2-plain-$4-s$5" --dataset "$2" --max-seconds $(($3 * 60)) --estimator "$4" --seed "$5" \
        --shifts 0 --no-flips
    ;;
dreams) # dreams DATASET MINUTES GRADIENT SEED: the preset, with augmentation, and with dreams too
    train "cpu$3-$2-dreams-$4-s$5" --dataset "$2" --max-seconds $(($3 * 60)) --estimator "$4" --seed "$5" \
        --dreams True
    ;;
parts) # parts SEED: what each part of the preset is worth, on MNIST in five minutes
    part() {
        name=$1
        shift
        train "parts-$name-s$SEED" --dataset mnist --max-seconds 300 --seed "$SEED" "$@"
    }
    SEED=$2
    part all
    part no-flow --cnfs 0
    part low-rank --field low-rank
    part hutchinson --divergence hutchinson
    part no-average --average 0
    part mlp --networks mlp --hidden 400
    part no-shifts --shifts 0
    part total --estimator total
    part published --networks published --channels 32
    ;;
paper) # paper DATASET GRADIENT SEED EPOCHS: the published model and training
    train "paper-$2-$3-s$4" --dataset "$2" --preset paper --estimator "$3" --seed "$4" --epochs "$5"
    ;;
*)
    echo "usage: [CORE=1] [CLOCK=cpu] benchmarks/vae.sh cpu DATASET MINUTES GRADIENT SEED | plain ... | dreams ..." >&2
    echo "       | nll NAME IMAGES | parts SEED | paper DATASET GRADIENT SEED EPOCHS" >&2
    exit 2
    ;;
esac
