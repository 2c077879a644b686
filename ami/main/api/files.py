"""File downloads: authorized by role or signed link, streamed from a folder or redirected to a bucket."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.files.storage import default_storage
from django.http import FileResponse, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, NotFound, PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from ami.celery import outages
from ami.main.permissions import ProjectRole
from ami.main.services import bucket_findings, file_urls, stored_files
from ami.main.services.stored_files import Area, FileRefused

logger = logging.getLogger(__name__)

#: Types that a browser may show; others are downloaded, because unknown content would run on our origin.
PICTURES = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
}
ANY_BYTES = "application/octet-stream"

#: Lifetime of a redirect to the bucket; clients follow it immediately.
REDIRECT_SECONDS = 300


class StorageUnreachable(APIException):
    """The bucket is unreachable."""

    status_code = 503
    default_detail = "The file storage is unreachable; try again."


class AnyType(BaseContentNegotiation):
    """Ignores the Accept header: a browser that wants an image sends no ``application/json``."""

    def select_parser(self, request: Request, parsers: Any) -> Any:  # noqa: ARG002
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:  # noqa: ARG002
        """Return the first renderer; it renders errors."""
        return renderers[0], renderers[0].media_type


class RoleOrLink(ProjectRole):
    """Grants access to a file by the user's role in its project or by a signed link."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Accept a signed link or a user; without a user, refuse a wrong or expired link with the reason."""
        if getattr(view, "is_opened_by_link", False) or super().has_permission(request, view):
            return True
        if "signature" in request.query_params:
            try:
                file_urls.check(request.path_info, request.query_params)
            except file_urls.LinkRefused as error:
                raise PermissionDenied(str(error)) from error
        return False

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        return getattr(view, "is_opened_by_link", False) or super().has_object_permission(request, view, obj)


class FileLinks:
    """Mixin before `ProjectScoped` for views with a `file_action`: a signed link needs no account."""

    @property
    def is_opened_by_link(self) -> bool:
        """Whether the request carries a valid signature of its own path; only paths of files are signed."""
        request = getattr(self, "request", None)
        return request is not None and file_urls.opens(request.path_info, request.GET)

    def get_authenticators(self) -> list[Any]:
        """Skip authentication for a valid link: an expired token must not block it."""
        return [] if self.is_opened_by_link else super().get_authenticators()  # type: ignore[misc]

    def get_queryset(self) -> Any:
        """Return all rows for a link, which names one of them; otherwise those of the user's projects."""
        if self.is_opened_by_link:
            return self.queryset.all()  # type: ignore[attr-defined]
        return super().get_queryset()  # type: ignore[misc]


LINK = [
    OpenApiParameter("expires", OpenApiTypes.INT, description="Of a signed link: when it expires."),
    OpenApiParameter("signature", OpenApiTypes.STR, description="Of a signed link; it needs no token."),
]


def file_action(*media_types: str) -> Callable[[Callable[..., Any]], Any]:
    """Make a method a `GET` endpoint that returns a file of these types."""
    kept = {
        302: OpenApiResponse(description="The file is in a bucket; the URL is signed for five minutes."),
        403: OpenApiResponse(description="The signature is wrong or has expired."),
        404: OpenApiResponse(description="There is no such file."),
        409: OpenApiResponse(description="There is no file yet."),
        503: OpenApiResponse(description="The bucket is unreachable."),
    }
    files = {(200, media_type): OpenApiTypes.BINARY for media_type in media_types}
    options = {"permission_classes": [RoleOrLink], "content_negotiation_class": AnyType, "pagination_class": None}

    def decorate(method: Callable[..., Any]) -> Any:
        return extend_schema(parameters=LINK, responses={**files, **kept})(
            action(detail=True, methods=["get"], filter_backends=[], **options)(method)
        )

    return decorate


@dataclass(frozen=True)
class Download:
    """A file to send; ``name`` is the name for the client, ``missing`` the message of the 404."""

    area: Area
    path: str
    name: str
    content_type: str
    is_attachment: bool
    missing: str
    cache_seconds: int = 0

    def headers(self) -> dict[str, str]:
        """Return headers that keep the file from running on our origin and out of shared caches."""
        return {
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "Cache-Control": f"private, max-age={self.cache_seconds}" if self.cache_seconds else "private, no-store",
        }


def picture(area: Area, path: str, name: str) -> Download:
    """Return the download of a picture, shown inline if its type is known; ``name`` has no extension."""
    extension = path.rpartition(".")[2].lower()
    content_type = PICTURES.get(extension)
    return Download(
        area=area,
        path=path,
        name=f"{name}.{extension if content_type else 'bin'}",
        content_type=content_type or ANY_BYTES,
        is_attachment=content_type is None,
        missing="The picture is not in the storage.",
        cache_seconds=3600,
    )


def file_response(request: Request, download: Download) -> HttpResponseBase:
    """Stream the file from a folder, or redirect to a URL that the bucket signs.

    Raises:
        NotFound: the file does not exist, or its path is refused.
        StorageUnreachable: the bucket is unreachable.
    """
    try:
        return _from_folder(request, download) if stored_files.in_folder() else _from_bucket(request, download)
    except (FileRefused, OSError) as error:
        logger.warning("File not available", extra={"path": request.path_info, "reason": str(error)})
        raise NotFound(download.missing) from error


def _from_folder(request: Request, download: Download) -> HttpResponseBase:
    file = download.area.open(download.path)
    streamed = FileResponse(
        file,
        as_attachment=download.is_attachment,
        filename=download.name,
        content_type=download.content_type,
        headers=download.headers(),
    )
    if request.method != "HEAD":
        return streamed
    file.close()  # Closing the response would end the request.
    return HttpResponse(headers=dict(streamed.items()))


def _from_bucket(request: Request, download: Download) -> HttpResponseBase:
    from botocore.exceptions import BotoCoreError, ClientError

    download.area.refuse(download.path)
    try:
        if not default_storage.exists(download.path):
            raise NotFound(download.missing)
        if request.method == "HEAD":
            # A URL that is signed for GET refuses HEAD.
            headers = {**download.headers(), "Content-Length": str(default_storage.size(download.path))}
            return HttpResponse(headers=headers, content_type=download.content_type)
        disposition = "attachment" if download.is_attachment else "inline"
        parameters = {
            "ResponseContentType": download.content_type,
            "ResponseContentDisposition": f'{disposition}; filename="{download.name}"',
        }
        address = default_storage.url(download.path, parameters=parameters, expire=REDIRECT_SECONDS)
    except (BotoCoreError, ClientError) as error:
        outages.report(outages.BUCKET, bucket_findings.sentence, error)
        raise StorageUnreachable from error
    outages.answered(outages.BUCKET, is_sure=True)
    return HttpResponseRedirect(address, headers={"Cache-Control": "private, no-store"})
