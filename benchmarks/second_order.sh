#!/bin/sh
# Compare Gauss-Newton with Adam (path and total gradient): same flow, same start, same time, one core each.
#   adam SIZE|TOY SECONDS           both gradients at the same time, each on its own core
#   gauss-newton SIZE|TOY SECONDS   on core 0; keep core 1 busy, or this run has the memory to itself
# SIZE is that of a lattice (phi^4 from scratch, with the model that `--preset best` has at that size), TOY is
# funnel, correlated or mixture (with an MLPField). `pathgrad plot ... --figure time` draws the result.
# `python -m benchmarks.record_run runs/phi4/second_order --out results/phi4/runs` writes the records.
set -eu
cd "$(dirname "$0")/.."
PATHGRAD=${PATHGRAD:-.venv/bin/pathgrad}

case ${2:-} in
6) what="phi4 --size 6 --time-kernels 3 --time-bond 3 --features 12 --channels 6 --solver-steps 6" ;;
12 | 20) what="phi4 --size $2 --time-kernels 5 --time-bond 5 --features 16 --channels 8 --solver-steps 8" ;;
funnel) what="toy --target funnel --dim 10 --width 32 --depth 1" ;;
correlated) what="toy --target correlated --dim 20 --width 32 --depth 1" ;;
mixture) what="toy --target mixture --width 32 --depth 1" ;;
*) sed -n '2,7s/^# //p' "$0" && exit 2 ;;
esac
case $what in
phi4*) out=runs/phi4/second_order/L$2 ;;
*) out=runs/toy/second_order/$2 ;;
esac

train() { # train CORE METHOD OPTIONS...
    core=$1 method=$2
    shift 2
    # shellcheck disable=SC2086
    taskset -c "$core" $PATHGRAD train $what "$@" --steps 1000000 --max-seconds "$seconds" --out "$out-$method"
}
seconds=$3
case $1 in
adam)
    train 0 adam-path --estimator path --decay none --block 10 &
    train 1 adam-total --estimator total --decay none --block 10 &
    wait ;;
gauss-newton) train 0 gauss-newton --optimizer gauss-newton ;;
esac
