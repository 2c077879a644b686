"""The GPUs' memory through a library that is absent, works, and breaks; and the real one where there is a GPU."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ami.governor.probes.gpu import Gpu

GIB = 2**30


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"answer {value}")
        self.value = value


class Nvml:
    """pynvml with these used gibibytes of 10 on each GPU; ``answer`` is the error that every call gives."""

    NVMLError = NVMLError
    NVML_ERROR_INVALID_ARGUMENT = 2
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
    NVML_ERROR_GPU_NOT_FOUND = 28

    def __init__(self, *used, answer=None):
        self.used, self.answer, self.inits, self.unsupported = used, answer, 0, set()

    def _check(self):
        if self.answer is not None:
            raise NVMLError(self.answer)

    def nvmlInit(self):
        self.inits += 1
        self._check()

    def nvmlShutdown(self):
        self._check()

    def nvmlDeviceGetCount(self):
        self._check()
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, index):
        self._check()
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}abc-def"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-1":
            raise NVMLError(self.NVML_ERROR_NOT_FOUND)
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle):
        self._check()
        if handle in self.unsupported:
            raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(used=self.used[handle] * GIB, total=10 * GIB)


def test_the_fullest_gpu_is_reported():
    assert Gpu(Nvml(2, 9, 4), {}).percent() == 90


def test_the_library_is_started_once_and_at_the_first_question():
    nvml = Nvml(1)
    gpu = Gpu(nvml, {})
    before = nvml.inits
    gpu.percent()
    gpu.percent()

    assert (before, nvml.inits) == (0, 1)


@pytest.mark.parametrize(
    ("visible", "percent"),
    [
        ("0", 20),
        ("0,2", 40),
        ("2, 0", 40),
        ("", None),
        ("-1", None),
        ("7", None),
        ("0,7,1", 20),
        ("GPU-1a", 90),
        ("GPU-", None),
        ("GPU-9", None),
        ("MIG-1", 20),
        ("MIG-2", None),
        ("NoDevFiles", None),
    ],
)
def test_only_the_visible_gpus_count(visible, percent):
    assert Gpu(Nvml(2, 9, 4), {"CUDA_VISIBLE_DEVICES": visible}).percent() == percent


@pytest.mark.parametrize("answer", [Nvml.NVML_ERROR_LIBRARY_NOT_FOUND, Nvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_no_driver_is_none_and_is_not_asked_again(answer):
    nvml = Nvml(answer=answer)
    gpu = Gpu(nvml, {})

    assert (gpu.percent(), gpu.percent(), nvml.inits) == (None, None, 1)


def test_no_gpu_is_none():
    assert Gpu(Nvml(), {}).percent() is None


def test_no_library_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert Gpu(environ={}).percent() is None


def test_a_gpu_without_a_memory_of_its_own_is_left_out():
    nvml = Nvml(9, 3)
    nvml.unsupported = {0}

    assert Gpu(nvml, {}).percent() == 30


def test_a_driver_that_is_there_and_does_not_answer_is_an_error():
    gpu = Gpu(Nvml(1, answer=Nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH), {})

    for _ in range(2):
        with pytest.raises(OSError, match="NVML failed: answer 18"):
            gpu.percent()


@pytest.mark.parametrize("answer", [Nvml.NVML_ERROR_GPU_IS_LOST, Nvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_driver_that_stops_working_is_an_error(answer):
    nvml = Nvml(5)
    gpu = Gpu(nvml, {})
    gpu.percent()
    nvml.answer = answer
    for _ in range(2):
        with pytest.raises(OSError, match="NVML failed"):
            gpu.percent()
    nvml.answer = None

    assert gpu.percent() == 50


def test_the_real_library_answers_on_any_machine():
    percent = Gpu(environ={}).percent()

    assert percent is None or 0 <= percent <= 100


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="NO NVIDIA GPU HERE: the real NVML was not tried")
def test_a_real_gpu_shows_a_percent():
    assert 0 <= Gpu(environ={}).percent() <= 100
