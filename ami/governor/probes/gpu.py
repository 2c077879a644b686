"""How full the GPUs' memories are, from NVIDIA's management library."""

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

#: NVML's errors that mean there is no GPU, as opposed to a failing one.
ABSENT = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_GPU_NOT_FOUND")
#: Of one device: it has no such value (its memory is the host's), or it is a name NVML does not know.
UNKNOWN = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NOT_FOUND", "NVML_ERROR_INVALID_ARGUMENT")


class Gpu:
    """The NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves to this process; all where it is not set.

    NVML is started at the first question, in the process that asks, and left running. Its indices are CUDA's only under
    CUDA_DEVICE_ORDER=PCI_BUS_ID or where all GPUs are alike. Source: NVML API reference, CUDA programming guide
    ("CUDA environment variables").
    """

    def __init__(self, nvml: Any = None, environ: Mapping[str, str] | None = None) -> None:
        self._nvml = nvml
        self._environ = os.environ if environ is None else environ
        self._started = self._worked = self._absent = False

    def percent(self) -> float | None:
        """Return the highest used share of a GPU's memory, 0 to 100; None where there is no GPU.

        Raises:
            OSError: NVML answered with an error that is not absence, or with any after it once worked. The next call
                starts it again, so that a reloaded driver is read again.
        """
        if self._absent:
            return None
        if self._nvml is None and not self._load():
            return None
        nvml = self._nvml
        try:
            if not self._started:
                nvml.nvmlInit()
                self._started = True
            percents = [percent for handle in self._handles() if (percent := self._percent(handle)) is not None]
        except nvml.NVMLError as error:
            self._fail(error)
            return None
        self._worked = self._worked or bool(percents)
        return max(percents, default=None)

    def _load(self) -> bool:
        try:
            self._nvml = importlib.import_module("pynvml")
        except ImportError:
            self._absent = True
        return not self._absent

    def _fail(self, error: Exception) -> None:
        if self._started:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
            self._started = False
        if not self._worked and self._is(error, ABSENT):
            self._absent = True  # Another try would search the disk for the library at every check.
            return
        raise OSError(f"NVML failed: {error}") from error

    def _is(self, error: Exception, names: tuple[str, ...]) -> bool:
        return getattr(error, "value", None) in [getattr(self._nvml, name) for name in names]

    def _handles(self) -> Iterator[Any]:
        devices = [self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(self._nvml.nvmlDeviceGetCount())]
        wanted = self._environ.get("CUDA_VISIBLE_DEVICES")
        if wanted is None:
            yield from devices
            return
        for name in wanted.split(","):
            handle = self._named(name.strip(), devices)
            if handle is None:
                return  # CUDA, too, ends the list at the first name it does not know (-1 is such a name).
            yield handle

    def _named(self, name: str, devices: list[Any]) -> Any:
        if name.isdecimal():
            return devices[int(name)] if int(name) < len(devices) else None
        if name.startswith("GPU-"):  # CUDA takes any beginning that is one GPU's alone.
            found = [device for device in devices if _text(self._nvml.nvmlDeviceGetUUID(device)).startswith(name)]
            return found[0] if len(found) == 1 else None
        if not name.startswith("MIG-"):
            return None
        try:
            return self._nvml.nvmlDeviceGetHandleByUUID(name)
        except self._nvml.NVMLError as error:
            if self._is(error, UNKNOWN):
                return None
            raise

    def _percent(self, handle: Any) -> float | None:
        try:
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError as error:
            if self._is(error, UNKNOWN[:1]):
                return None
            raise
        return 100 * int(memory.used) / int(memory.total) if memory.total else None


def _text(uuid: str | bytes) -> str:
    """Return what older releases of nvidia-ml-py give as bytes."""
    return uuid.decode() if isinstance(uuid, bytes) else uuid
