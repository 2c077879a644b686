"""How full the memories of AMD's GPUs are, from the JSON of ``amd-smi`` or the older ``rocm-smi``."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

#: The first that is installed is called. Source: their ``--help``, and AMD's repositories amdsmi and rocm_smi_lib.
COMMANDS = (("amd-smi", "metric", "--mem-usage", "--json"), ("rocm-smi", "--showmeminfo", "vram", "--json"))
#: A call takes about a second of a processor; a driver that hangs lets it wait for ever.
EVERY_SECONDS = 5.0
TIMEOUT_SECONDS = 60.0

TOTAL, USED = "VRAM Total Memory (B)", "VRAM Total Used Memory (B)"


class Rocm:
    """AMD's GPUs that the tool shows to this process; ``HIP_VISIBLE_DEVICES`` hides none of them.

    The tool runs beside the worker: a call of `percent` reads what the one before has started, and starts the next.
    """

    def __init__(
        self,
        which: Callable[[str], str | None] = shutil.which,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._which, self._clock = which, clock
        self._command: tuple[str, ...] | None = None
        self._looked_for = False
        self._running: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._started_at = -EVERY_SECONDS
        self._percent: float | None = None

    def percent(self) -> float | None:
        """Return the highest used share of a GPU's memory, 0 to 100, as of the last call; None where there is no tool.

        Raises:
            OSError: the tool failed, or does not answer.
            ValueError: its answer has an unexpected content.
        """
        if not self._looked_for:
            self._looked_for, self._command = True, self._installed()
        if self._command is None:
            return None
        try:
            self._read_answer()
        except (OSError, ValueError):
            self._percent = None
            raise
        finally:
            if self._running is None and self._clock() - self._started_at >= EVERY_SECONDS:
                self._start(self._command)
        return self._percent

    def close(self) -> None:
        """End the tool if it runs."""
        running, output = self._running, self._output
        self._running = self._output = None
        if running is not None and output is not None:
            running.kill()
            running.wait()
            output.close()

    def _installed(self) -> tuple[str, ...] | None:
        found = ((path, *command[1:]) for command in COMMANDS if (path := self._which(command[0])))
        return next(found, None)

    def _start(self, command: tuple[str, ...]) -> None:
        self._started_at = self._clock()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe could fill up before it is read.
        self._running = subprocess.Popen(  # noqa: S603 - our own command line.
            command, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL
        )

    def _read_answer(self) -> None:
        running, output = self._running, self._output
        if running is None or output is None:
            return
        if running.poll() is None:
            if self._clock() - self._started_at < TIMEOUT_SECONDS:
                return
            running.kill()
            running.wait()
        self._running = self._output = None
        with output:
            output.seek(0)
            text = output.read()
        if running.returncode and self._command:
            raise OSError(f"{self._command[0]} ended with exit code {running.returncode}")
        self._percent = highest(text)


def highest(text: bytes) -> float | None:
    """Return the highest percentage in the JSON of either tool; None if no GPU shows its memory.

    Raises:
        ValueError: it is not their JSON.
    """
    try:
        pairs = list(_memories(json.loads(text)))
        return max((100 * float(used) / float(total) for used, total in pairs if float(total)), default=None)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"unexpected JSON of AMD's tool ({error!r}): {text[:80]!r}") from None


def _memories(answer: Any) -> Iterator[tuple[Any, Any]]:
    """Yield used and total memory of each GPU that knows them, in the same unit."""
    if isinstance(answer, dict) and "gpu_data" not in answer:  # rocm-smi: "card0" to its values, and "system".
        for name, card in answer.items():
            if name.startswith("card"):
                yield card[USED], card[TOTAL]
        return
    for gpu in answer["gpu_data"] if isinstance(answer, dict) else answer:  # A list alone in earlier releases.
        used, total = gpu["mem_usage"]["used_vram"], gpu["mem_usage"]["total_vram"]
        if "N/A" not in (used, total):
            yield used["value"], total["value"]
