"""API errors that any app may raise."""

from rest_framework import status
from rest_framework.exceptions import APIException

BUSY_RETRY_SECONDS = 30


class TooSlow(APIException):
    """The request body came too slowly."""

    status_code = status.HTTP_408_REQUEST_TIMEOUT
    default_code = "too_slow"


class Busy(APIException):
    """Another large body is being processed; this one was neither read nor stored."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "busy"
    #: Django REST framework sends this as Retry-After.
    wait = BUSY_RETRY_SECONDS


class Conflict(APIException):
    """The state of the object does not allow the operation."""

    status_code = status.HTTP_409_CONFLICT
    default_code = "conflict"
