#!/bin/sh
# Measure what a training gradient costs, and write everything in results/bench. Leave the machine alone meanwhile:
# ratios of times are taken within one run, but other work widens their spread. A second call continues where the
# first one stopped; add --overwrite to measure again. bijx and flowjax are measured too if they are installed.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 # large memory pages make steps faster

rivals=
if "$PYTHON" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("bijx") or u.find_spec("flowjax")))'; then
    rivals=--rivals
else
    echo "benchmarks/bench.sh: neither bijx nor flowjax is installed; leaving them out" >&2
fi
"$PYTHON" -m benchmarks.study --out results/bench $rivals "$@"
