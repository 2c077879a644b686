"""Errors of pipelines, processing services and pictures."""


class PipelineNotConfigured(Exception):
    """A pipeline or algorithm is not registered, or has no usable service; register it, then replay the dead letter."""


class ServiceUnreachable(Exception):
    """A processing service did not answer in time, or answered 502, 503 or 504 at every try."""


class CaptureUnreadable(Exception):
    """The picture of a capture could not be fetched, is too large, or is broken."""


class PictureRefused(Exception):
    """A picture is never decoded: not JPEG or PNG, too many pixels, or a forbidden address. No retry helps."""


class PictureTooLarge(PictureRefused):
    """Decoding a picture takes more memory than a fresh process of its queue has. No retry helps."""


class MemoryOccupied(CaptureUnreadable):
    """Decoding a picture takes more memory than its process has left; a retry may run in another one."""


class ServiceRefused(Exception):
    """A processing service answered without results: a 4xx or 500, or a body that is not a pipeline response."""


class CropsFailed(Exception):
    """Some captures could not be cropped, the others were; the message names each failed one with its reason."""


class CropsRefused(CropsFailed):
    """As `CropsFailed`, and a retry cannot help for any of them."""
