"""Serializer fields with URLs of files: signed in a response, stable in what is stored."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from ami.main.models import Detection, SourceImage
from ami.main.services import file_urls


def base_of(request: Request) -> str:
    """Return the base URL under which the client reached this server."""
    return request.build_absolute_uri("/")


class CaptureUrlField(serializers.CharField):
    """The URL of a capture's picture; without a request, as in an export, the stable one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "source": "*", "read_only": True})

    def to_representation(self, value: SourceImage) -> str:
        if request := self.context.get("request"):
            return file_urls.capture_url(value, file_urls.for_people(), base_of(request))
        return file_urls.capture_address(value)


class CropUrlField(serializers.CharField):
    """The URL of a detection's crop, null until the crop exists; without a request the stable one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "source": "*", "read_only": True, "allow_null": True})

    def to_representation(self, value: Detection) -> str | None:  # type: ignore[override]
        if request := self.context.get("request"):
            return file_urls.crop_url(value, file_urls.for_people(), base_of(request))
        return file_urls.crop_address(value)
