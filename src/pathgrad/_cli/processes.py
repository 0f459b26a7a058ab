"""Several processes that work together: how they find each other, and how they end together."""

import contextlib
import dataclasses
import os
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Annotated

import tyro

import pathgrad as pg
from pathgrad._runs.machine import check_devices
from pathgrad._words.errors import UserError, as_options, check_at_least_one

from .failures import explained

CpuDevices = Annotated[
    int | None,
    tyro.conf.arg(
        help="How many devices the CPU counts as; they share each batch. By default what is fastest for the "
        "experiment, at most one for each core; a resumed run has as many as before."
    ),
]

# Words in the errors of the communication libraries when another process is gone.
_LOST = ("gloo", "nccl", "unavailable", "coordination service", "heartbeat")


@dataclasses.dataclass(frozen=True)
class Processes:
    """Several processes that share the draws. Under srun and mpirun, this is detected automatically."""

    coordinator: str | None = None
    """HOST:PORT at which the other processes reach the first one; any free port. Start the same command once
    for each process, with its own --process-id."""
    processes: int | None = None
    """Number of processes."""
    process_id: int | None = None
    """Number of this process, from 0. The first one writes the run directory and prints messages."""

    def join(self) -> None:
        """Connect to the other processes, if there are any. Call it before JAX is used for anything else."""
        if self.processes == 1 and not self.coordinator:
            return
        if self == Processes():
            if not _launched_together():
                return
        else:
            self._check()
            print(
                f"pathgrad: waiting for {self.processes or 'the other'} processes at {self.coordinator}; "
                f"a process that is alone for {pg.devices.CONNECT_SECONDS} s is ended",
                file=sys.stderr,
            )
        pg.devices.join(self.coordinator, self.processes, self.process_id)

    def _check(self) -> None:
        check_at_least_one(processes=self.processes)
        if self.coordinator is None or not self.coordinator.rpartition(":")[2].isdigit():
            got = "" if self.coordinator is None else f"; got {self.coordinator}"
            raise UserError(f"Several processes need --coordinator HOST:PORT, such as 10.0.0.1:12345{got}.")
        if _launched_together():  # the launcher also sets the number of processes and their ids
            return
        if self.processes is None or self.process_id is None:
            raise UserError("--coordinator also needs --processes and --process-id.")
        if not 0 <= self.process_id < self.processes:
            raise UserError(f"--process-id must be from 0 to {self.processes - 1}, got {self.process_id}.")

    def split_cpu(self, experiment: pg.AbstractExperiment, wanted: int | None, before: int | None) -> None:
        """Let the CPU of a lone process count as several devices: as wanted, as before, or as suits."""
        if wanted is not None and wanted < 1:
            raise UserError(f"--cpu-devices must be at least 1, got {wanted}.")
        if self == Processes() and not _launched_together():
            pg.devices.split_cpu(wanted or before or min(experiment.cpu_devices, pg.devices.cores()))

    @contextlib.contextmanager
    def together(self, again: str) -> Iterator[None]:
        """Join, and let no process wait for one that has failed. `again` tells the user how to continue."""
        self.join()
        check_devices()
        if pg.devices.is_alone():
            yield
            return
        try:
            yield
        except BaseException as error:
            # A normal exit waits for the other processes, which may be waiting for this one.
            _end(error, again)


def _launched_together() -> bool:
    """Return whether a launcher that JAX supports has started several processes.

    A script in a SLURM allocation is one process, whatever the allocation; only `srun` starts several.
    """
    given = os.environ
    slurm = "SLURM_PROCID" in given and "SLURM_STEP_NODELIST" in given
    if slurm and int(given.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        return True
    # (Open MPI 5 no longer provides the address by which JAX finds the first process.)
    return "OMPI_MCA_orte_hnp_uri" in given and int(given.get("OMPI_COMM_WORLD_SIZE") or 1) > 1


def _end(error: BaseException, again: str) -> None:
    """Print why, and end without waiting."""
    message, code = f"{type(error).__name__}: {error}".lower(), 1
    if isinstance(error, UserError):
        text, code = as_options(error.text), 2
    elif isinstance(error, KeyboardInterrupt):
        text, code = "interrupted", 130
    elif isinstance(error, RuntimeError | ValueError) and any(word in message for word in _LOST):
        text = (
            "another process of this job has ended or cannot be reached, so this one ends too. Read its "
            f"messages. {again}\n(JAX: {error})"
        )
    elif (said := explained(error, sys.argv[1:])) is not None:
        text, code = said, 2
    else:
        text = "".join(traceback.format_exception(error))
    print(f"\npathgrad: {pg.devices.which_process()}: {text}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    if pg.devices.is_first():
        time.sleep(1)  # the others learn of it through this process, and would be cut off
    os._exit(code)
