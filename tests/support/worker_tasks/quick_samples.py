"""Makes a process that imports this sample, count and take over within seconds."""

from ami.telemetry import sampler

sampler.SAMPLE_SECONDS, sampler.TRY_SECONDS = 1.0, 1.0
sampler.READ_SECONDS, sampler.WRITE_SECONDS, sampler.COUNT_SECONDS = 2.0, 2.0, 2.0
