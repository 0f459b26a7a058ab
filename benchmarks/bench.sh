#!/bin/sh
# What a training gradient costs: everything in results/bench. On an idle machine: times are ratios within one
# run, but a busy one widens their spread. A second call goes on where the first one stopped; to measure again,
# add --overwrite. The other packages (`pip install bijx flowjax`) are measured where they are installed.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1 # large pages for large arrays: some tenths of a step's time

rivals=
if "$PYTHON" -c 'import importlib.util as u, sys; sys.exit(not (u.find_spec("bijx") or u.find_spec("flowjax")))'; then
    rivals=--rivals
else
    echo "benchmarks/bench.sh: neither bijx nor flowjax is installed; leaving them out" >&2
fi
"$PYTHON" -m benchmarks.study --out results/bench $rivals "$@"
