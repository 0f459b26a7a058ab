#!/bin/sh
# Compare the path and the total gradient for autoencoders. The two runs of a pair train at the same time, each on its
# own core, so that both see the same conditions. PATHGRAD_DATA says where the images are. A second call continues
# where the first one stopped. `python -m benchmarks.record_run runs/vae/* --out results/vae/runs` writes the records.
set -eu
cd "$(dirname "$0")/.."
OUT=runs/vae
PATHGRAD=.venv/bin/pathgrad
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 # large memory pages make steps faster

train() { # train CORE ESTIMATOR NAME SEED OPTIONS...
    core=$1 estimator=$2 run=$OUT/$3-$2-s$4 seed=$4
    shift 4
    if [ -e "$run/config.toml" ]; then
        taskset -c "$core" $PATHGRAD train vae --resume --out "$run" --epochs "$EPOCHS"
    else
        taskset -c "$core" $PATHGRAD train vae --estimator "$estimator" --seed "$seed" --out "$run" \
            --epochs "$EPOCHS" "$@"
    fi
}
pair() { # pair NAME SEED OPTIONS...: train with both gradients at the same time
    train 0 path "$@" &
    one=$!
    train 1 total "$@" &
    other=$!
    wait $one
    wait $other
}

case ${1:-} in
freyfaces) # the published model and training, for as many epochs as you have time for
    EPOCHS=${2:-5000}
    for seed in 0 1; do pair frey $seed --dataset freyfaces --preset paper; done
    ;;
cpu) # models for a CPU, for the same training time
    EPOCHS=200
    for dataset in caltech mnist omniglot; do pair cpu-$dataset 0 --dataset $dataset --preset cpu --max-seconds 360; done
    ;;
evaluate) # all runs that exist
    for run in $OUT/*-s[0-9]; do $PATHGRAD evaluate "$run" --nll-images 10 --samples 500; done
    ;;
*)
    echo "usage: benchmarks/vae.sh freyfaces [EPOCHS]|cpu|evaluate" >&2
    exit 2
    ;;
esac
