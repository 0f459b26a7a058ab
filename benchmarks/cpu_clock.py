"""Run a pathgrad command whose training time is measured in CPU seconds of its process, not by the wall.

    taskset -c 1 python -m benchmarks.cpu_clock train vae --dataset mnist --max-seconds 600

On a core that other programs use as well, the wall clock counts their time too. Pin the process to one core,
or the seconds of all its threads add up. What other programs do to caches and memory is still counted.
"""

import sys
import time
import types

from pathgrad._cli.main import main
from pathgrad._train import trainer

if __name__ == "__main__":
    trainer.time = types.SimpleNamespace(perf_counter=time.process_time)  # pyright: ignore[reportAttributeAccessIssue]
    sys.exit(main())
