"""Serializer fields with addresses of files: signed in an answer to a request, stable in what is stored."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from ami.main.models import Detection, SourceImage
from ami.main.services import file_urls


def base_of(request: Request) -> str:
    """Return the address under which the caller reaches this server."""
    return request.build_absolute_uri("/")


class CaptureUrlField(serializers.CharField):
    """The address of a capture's picture. Without a request, as in an export, it is the stable one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "source": "*", "read_only": True})

    def to_representation(self, value: SourceImage) -> str:
        """Return the address of the capture's source, or one that is signed now."""
        if request := self.context.get("request"):
            return file_urls.capture_url(value, file_urls.for_people(), base_of(request))
        return file_urls.capture_address(value)


class CropUrlField(serializers.CharField):
    """The address of a detection's crop, null until it is made. Without a request it is the stable one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "source": "*", "read_only": True, "allow_null": True})

    def to_representation(self, value: Detection) -> str | None:  # type: ignore[override]
        """Return the address that is signed now."""
        if request := self.context.get("request"):
            return file_urls.crop_url(value, file_urls.for_people(), base_of(request))
        return file_urls.crop_address(value)
