"""Several processes at the same work: how they find each other, and how they end together."""

import contextlib
import dataclasses
import os
import sys
import time
import traceback
from collections.abc import Iterator

import pathgrad as pg
from pathgrad._words.errors import UserError, as_options

# How the libraries that carry messages say that the other end is gone.
_LOST = ("gloo", "nccl", "unavailable", "coordination service", "heartbeat")


@dataclasses.dataclass(frozen=True)
class Processes:
    """Several processes that share the draws. Under srun and mpirun all of it is found out by itself."""

    coordinator: str | None = None
    """HOST:PORT where the first process can be reached by the others; any free port. Start the same command
    once for each process, with its own --process-id."""
    processes: int | None = None
    """How many processes there are."""
    process_id: int | None = None
    """Which of them this is, from 0. The first one writes the run directory and talks."""

    def join(self) -> None:
        """Connect to the other processes, if there are any. Before JAX is used for anything else."""
        if self.processes == 1 and not self.coordinator:
            return
        if self == Processes():
            if not _launched_together():
                return
        else:
            self._check()
            print(
                f"pathgrad: meeting {self.processes or 'the other'} processes at {self.coordinator}, within "
                f"{pg.devices.CONNECT_SECONDS} s; JAX ends those that are left alone",
                file=sys.stderr,
            )
        pg.devices.join(self.coordinator, self.processes, self.process_id)

    def _check(self) -> None:
        if self.coordinator is None or not self.coordinator.rpartition(":")[2].isdigit():
            wanted = "--coordinator HOST:PORT, such as 10.0.0.1:12345"
            raise UserError(f"Several processes need {wanted}; got {self.coordinator}.")
        if _launched_together():  # which also says how many, and which this is
            return
        if self.processes is None or self.process_id is None:
            raise UserError("--coordinator needs --processes and --process-id beside it.")
        if not 0 <= self.process_id < self.processes:
            raise UserError(f"--process-id must be from 0 to {self.processes - 1}, got {self.process_id}.")

    @contextlib.contextmanager
    def together(self, again: str) -> Iterator[None]:
        """Join, and let no process wait for one that has failed. `again` says how to go on after that."""
        self.join()
        if pg.devices.is_alone():
            yield
            return
        try:
            yield
        except BaseException as error:
            # The ordinary end of a process waits for the others, which may be waiting for this one.
            _end(error, again)


def _launched_together() -> bool:
    """Whether a launcher that JAX knows has started several of us.

    A script in a SLURM allocation is one process, whatever the allocation is for: steps of `srun` are many.
    """
    given = os.environ
    slurm = "SLURM_PROCID" in given and "SLURM_STEP_NODELIST" in given
    if slurm and int(given.get("SLURM_STEP_NUM_TASKS") or 1) > 1:
        return True
    # (Open MPI 5 has left out the address by which JAX finds the first process.)
    return "OMPI_MCA_orte_hnp_uri" in given and int(given.get("OMPI_COMM_WORLD_SIZE") or 1) > 1


def _end(error: BaseException, again: str) -> None:
    """Say why, and end without waiting."""
    said, code = f"{type(error).__name__}: {error}".lower(), 1
    if isinstance(error, UserError):
        text, code = as_options(error.text), 2
    elif isinstance(error, KeyboardInterrupt):
        text, code = "interrupted", 130
    elif isinstance(error, RuntimeError | ValueError) and any(word in said for word in _LOST):
        text = (
            "another process of this job has ended or cannot be reached, so this one ends too. See what "
            f"that one says. {again}\n(JAX: {error})"
        )
    else:
        text = "".join(traceback.format_exception(error))
    print(f"\npathgrad: {pg.devices.which_process()}: {text}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    if pg.devices.is_first():
        time.sleep(1)  # the others hear of it through this process, and would be cut short
    os._exit(code)
