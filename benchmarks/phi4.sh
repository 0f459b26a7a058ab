#!/bin/sh
# Compare the path and the total gradient on the lattice: three seeds at sizes 6 and 12; at sizes 20 and 32 one seed,
# starting from the trained flow of the size before. The two runs of a pair train at the same time, each on its own
# core, so that both see the same conditions. Then write the records:
# `python -m benchmarks.record_run runs/phi4/L* --out results/phi4/runs`.
set -eu
BEFORE=
cd "$(dirname "$0")/.."
OUT=runs/phi4
PATHGRAD=.venv/bin/pathgrad

pair() { # pair NAME SEED OPTIONS...: train with both gradients at the same time
    name=$1 seed=$2
    shift 2
    taskset -c 0 $PATHGRAD train phi4 --estimator path --seed "$seed" --out $OUT/"$name"-path-s"$seed" \
        $(from path "$seed") "$@" &
    one=$!
    taskset -c 1 $PATHGRAD train phi4 --estimator total --seed "$seed" --out $OUT/"$name"-total-s"$seed" \
        $(from total "$seed") "$@" &
    other=$!
    wait $one
    wait $other
}
from() { # from ESTIMATOR SEED: start from the smaller lattice, trained with the same gradient
    if [ -n "$BEFORE" ]; then echo "--init-from $OUT/$BEFORE-$1-s$2"; fi
}

case ${1:-} in
6) for seed in 0 1 2; do pair L6 $seed --size 6 --steps 1000 --max-seconds 60 --block 25; done ;;
12) for seed in 0 1 2; do pair L12 $seed --size 12 --steps 1400 --max-seconds 300 --solver-steps 8 --block 25; done ;;
20) BEFORE=L12 && pair L20 0 --size 20 --steps 1400 --batch 96 --learning-rate 0.005 --max-seconds 600 --block 20 ;;
32) BEFORE=L20 && pair L32 0 --size 32 --steps 700 --batch 64 --learning-rate 0.005 --max-seconds 700 --block 10 ;;
*) echo "usage: $0 6|12|20|32" && exit 2 ;;
esac
