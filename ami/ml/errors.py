"""What can be wrong with a pipeline or a processing service."""


class PipelineNotConfigured(Exception):
    """A result names a pipeline or an algorithm that nobody registered; register it, then replay the dead letter."""


class ServiceUnreachable(Exception):
    """A processing service did not answer in time, or answered 502, 503 or 504 until the tries were used up."""


class CaptureUnreadable(Exception):
    """The picture of a capture could not be fetched, is too large, or is no picture."""


class PictureRefused(Exception):
    """A capture is never opened: neither JPEG nor PNG, too many pixels, or a forbidden address. No retry helps."""


class ServiceRefused(Exception):
    """A processing service answered, but not with results: a 4xx or 500, or a body that is no pipeline response."""
