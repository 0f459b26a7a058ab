#!/bin/sh
# Gauss-Newton against Adam with path and total gradients: same flow, same start, same time, one core each.
#   lattice SIZE SECONDS   phi^4 from nothing, with the model of that rung of `--preset best`
#   toys SECONDS           targets that are no lattices, with an MLPField
#   ladder SEED SIZE       `--preset best` on all cores
set -eu
cd "$(dirname "$0")/.."
PATHGRAD=${PATHGRAD:-.venv/bin/pathgrad}

three() { # three OUT SECONDS COMMAND...: both gradients side by side, then Gauss-Newton
    out=$1 seconds=$2
    shift 2
    for gradient in path total; do
        core=$([ $gradient = path ] && echo 0 || echo 1)
        taskset -c "$core" $PATHGRAD "$@" --estimator $gradient --steps 1000000 --decay none --block 10 \
            --max-seconds "$seconds" --out "$out-adam-$gradient" &
    done
    wait
    taskset -c 0 $PATHGRAD "$@" --optimizer gauss-newton --steps 1000000 --max-seconds "$seconds" \
        --out "$out-gauss-newton"
    for method in adam-path adam-total gauss-newton; do $PATHGRAD evaluate "$out-$method" --samples 100000; done
}

case ${1:-} in
lattice)
    model="--time-kernels 5 --time-bond 5 --features 16 --channels 8 --solver-steps 8"
    if [ "$2" = 6 ]; then model="--time-kernels 3 --time-bond 3 --features 12 --channels 6 --solver-steps 6"; fi
    # shellcheck disable=SC2086
    three results/phi4/second_order/L"$2" "$3" train phi4 --size "$2" $model ;;
toys)
    for target in "funnel --dim 10" "correlated --dim 20" mixture; do
        # shellcheck disable=SC2086
        three results/toy/second_order/"${target%% *}" "$2" train toy --target $target --width 32 --depth 1
    done ;;
ladder) $PATHGRAD train phi4 --preset best --seed "$2" --size "$3" --out results/phi4/best-s"$2" ;;
*) sed -n '2,5s/^# //p' "$0" && exit 2 ;;
esac
