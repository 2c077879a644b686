"""Pictures in the admin: a capture with its boxes, thumbnails of captures, and crops.

All come from our own origin, whatever the storage is: a page's policy knows no bucket, and a browser may not reach it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html

from ami.main.models import Detection, SourceImage
from ami.main.services import file_urls
from ami.main.services.boxed_captures import Box, boxes_of
from ami.main.services.stored_files import CROP
from ami.main.services.thumbnails import PREVIEW_SIDE, SIDE, NoThumbnail, published_thumbnail, thumbnail

#: A picture is made at each request that the browser does not answer from its cache.
CACHE_SECONDS = 24 * 3600
#: From this share of the width on, a label ends where its box does: it would not fit beside it.
LABEL_TURNS = 0.75


def capture_link(capture: SourceImage) -> str:
    """Return a newly signed address of a capture's file; it leads to the public URL where there is one."""
    address = file_urls.address("captures", capture.pk, "image")
    return file_urls.signed_path(address, file_urls.for_people())


def preview_link(capture: SourceImage) -> str:
    """Return the address of a capture's picture in the size of a page, in its stored pixels."""
    return reverse("admin:main_sourceimage_preview", args=[capture.pk])


def thumbnail_link(capture: SourceImage) -> str:
    """Return the address of a capture's thumbnail."""
    return reverse("admin:main_sourceimage_thumbnail", args=[capture.pk])


def crop_link(detection: Detection) -> str:
    """Return the address of a detection's crop, empty until the crop exists."""
    return reverse("admin:main_detection_crop", args=[detection.pk]) if detection.path else ""


def crop_picture(detection: Detection, label: str = "crop") -> str:
    """Render a crop as a small picture that leads to its detection, "-" until it exists."""
    if not (link := crop_link(detection)):
        return "-"
    page = reverse("admin:main_detection_change", args=[detection.pk])
    picture = '<a href="{}"><img class="crop" src="{}" alt="{}" loading="lazy" height="64"></a>'
    return format_html(picture, page, link, label)


def _jpeg(make: Callable[..., bytes], *where: Any) -> HttpResponse:
    try:
        small = make(*where)
    except NoThumbnail as error:
        raise Http404(str(error)) from error
    headers = {"Cache-Control": f"private, max-age={CACHE_SECONDS}", "X-Content-Type-Options": "nosniff"}
    return HttpResponse(small, content_type="image/jpeg", headers=headers)


class CropPictures:
    """A mixin of the detections' model admin: the address of a crop."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.crop_view)  # type: ignore[attr-defined]
        return [path("<int:pk>/crop/", view, name="main_detection_crop"), *super().get_urls()]  # type: ignore[misc]

    def crop_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the crop; 404 until it exists."""
        if not self.has_view_or_change_permission(request):  # type: ignore[attr-defined]
            raise PermissionDenied
        file = Detection.objects.filter(pk=pk).values_list("path", flat=True).first()
        if not file:
            raise Http404
        return _jpeg(thumbnail, file, SIDE, CROP)


class CapturePictures:
    """A mixin of the captures' model admin: thumbnails in the list, and boxes on the page of one."""

    change_form_template = "main/admin/capture_page.html"

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view  # type: ignore[attr-defined]
        return [
            path("<int:pk>/thumbnail/", wrap(self.thumbnail_view), name="main_sourceimage_thumbnail"),
            path("<int:pk>/preview/", wrap(self.preview_view), name="main_sourceimage_preview"),
            *super().get_urls(),  # type: ignore[misc]
        ]

    def thumbnail_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the thumbnail; 404 without a picture of ours that can be read."""
        capture = self._visible(request, pk)
        if capture.public_url():  # A list would fetch a hundred.
            raise Http404
        return _jpeg(thumbnail, capture.path, SIDE)

    def preview_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the picture in the size of a page; 404 without one that can be read."""
        capture = self._visible(request, pk)
        if url := capture.public_url():
            return _jpeg(published_thumbnail, url, PREVIEW_SIDE)
        return _jpeg(thumbnail, capture.path, PREVIEW_SIDE)

    def _visible(self, request: HttpRequest, pk: int) -> SourceImage:
        if not self.has_view_or_change_permission(request):  # type: ignore[attr-defined]
            raise PermissionDenied
        return get_object_or_404(SourceImage, pk=pk)

    def small_picture(self, capture: SourceImage) -> str:
        """Render the thumbnail of a capture with a link to its page."""
        if capture.public_url():
            return format_html('<a href="{}">open</a>', capture_link(capture))
        page = reverse("admin:main_sourceimage_change", args=[capture.pk])
        picture = '<a href="{}"><img class="thumbnail" src="{}" alt="{}" loading="lazy" height="60"></a>'
        return format_html(picture, page, thumbnail_link(capture), f"capture {capture.pk}")

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        """Show the capture above the form, also a picture that its source publishes elsewhere."""
        answer = super().changeform_view(request, object_id, form_url, extra_context)  # type: ignore[misc]
        shown = answer.context_data.get("original") if isinstance(answer, TemplateResponse) else None
        if isinstance(shown, SourceImage):
            answer.context_data["drawn"] = drawn(shown)
        return answer


def drawn(capture: SourceImage) -> str:
    """Render the capture with a box, a label and a score for each detection, and its crops below."""
    text_size = max(12, (capture.height or 0) // 45)
    context = {
        "picture": preview_link(capture),
        "file": capture_link(capture),
        "width": capture.width,
        "height": capture.height,
        "is_measured": bool(capture.width and capture.height),
        "text_size": text_size,
        "boxes": _shown(boxes_of(capture), capture.width or 0, text_size),
    }
    return render_to_string("main/admin/capture.html", context)


def _shown(boxes: Sequence[Box], width: int, text_size: int) -> list[dict[str, Any]]:
    """Return each box with its page, its crop, and where its label stands: inside the picture."""
    return [
        {
            "box": box,
            "page": reverse("admin:main_detection_change", args=[box.detection.pk]),
            "crop": crop_link(box.detection),
            "at_end": box.x > LABEL_TURNS * width,
            "label_x": box.x + box.width if box.x > LABEL_TURNS * width else box.x,
            "label_y": box.y - 5 if box.y > 1.5 * text_size else box.y + box.height + 1.2 * text_size,
        }
        for box in boxes
    ]
