"""Pictures in the admin: a capture with its boxes, thumbnails of captures, and crops."""

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html

from ami.main.models import Detection, SourceImage
from ami.main.services import file_urls
from ami.main.services.boxed_captures import Box, boxes_of
from ami.main.services.thumbnails import NoThumbnail, thumbnail

#: A thumbnail is made at each request that the browser does not answer from its cache.
CACHE_SECONDS = 24 * 3600


def capture_link(capture: SourceImage) -> str:
    """Return a newly signed address of a capture's picture; it leads to the public URL where there is one."""
    address = file_urls.address("captures", capture.pk, "image")
    return file_urls.signed_path(address, file_urls.for_people())


def crop_link(detection: Detection) -> str:
    """Return a newly signed address of a detection's crop, empty until the crop exists."""
    if not detection.path:
        return ""
    address = file_urls.address("detections", detection.pk, "crop")
    return file_urls.signed_path(address, file_urls.for_people())


def crop_picture(detection: Detection, label: str = "crop") -> str:
    """Render a crop as a small picture with a link to itself, "-" until it exists."""
    link = crop_link(detection)
    picture = '<a href="{0}"><img class="crop" src="{0}" alt="{1}" loading="lazy" height="64"></a>'
    return format_html(picture, link, label) if link else "-"


class CapturePictures:
    """A mixin of the captures' model admin: thumbnails in the list, and boxes on the page of one."""

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.thumbnail_view)  # type: ignore[attr-defined]
        return [path("<int:pk>/thumbnail/", view, name="main_sourceimage_thumbnail"), *super().get_urls()]  # type: ignore[misc]

    def thumbnail_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the thumbnail; 404 without a picture of ours that can be read."""
        if not self.has_view_or_change_permission(request):  # type: ignore[attr-defined]
            raise PermissionDenied
        capture = SourceImage.objects.filter(pk=pk).first()
        if capture is None or capture.public_url():
            raise Http404
        try:
            small = thumbnail(capture.path)
        except NoThumbnail as error:
            raise Http404(str(error)) from error
        headers = {"Cache-Control": f"private, max-age={CACHE_SECONDS}", "X-Content-Type-Options": "nosniff"}
        return HttpResponse(small, content_type="image/jpeg", headers=headers)

    def small_picture(self, capture: SourceImage) -> str:
        """Render the thumbnail of a capture with a link to the picture."""
        if capture.public_url():
            return format_html('<a href="{}">open</a>', capture_link(capture))
        source = reverse("admin:main_sourceimage_thumbnail", args=[capture.pk])
        picture = '<a href="{}"><img class="thumbnail" src="{}" alt="{}" loading="lazy" height="60"></a>'
        return format_html(picture, capture_link(capture), source, f"capture {capture.pk}")

    def drawn(self, capture: SourceImage) -> str:
        """Render the capture with a box, a label and a score for each detection, and its crops below."""
        context = {
            "picture": capture_link(capture),
            "width": capture.width,
            "height": capture.height,
            "is_measured": bool(capture.width and capture.height),
            "text_size": max(12, (capture.height or 0) // 45),
            "boxes": [_shown(box) for box in boxes_of(capture)],
        }
        return render_to_string("main/admin/capture.html", context)

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any) -> Any:
        """Allow the page of a capture to show a picture that its source publishes elsewhere."""
        answer = super().changeform_view(request, object_id, *args, **kwargs)  # type: ignore[misc]
        shown = answer.context_data.get("original") if isinstance(answer, TemplateResponse) else None
        if isinstance(shown, SourceImage) and (address := urlsplit(shown.public_url())).hostname:
            answer.picture_sources = [f"{address.scheme}://{address.netloc.rpartition('@')[2]}"]
        return answer


def _shown(box: Box) -> dict[str, Any]:
    page = reverse("admin:main_detection_change", args=[box.detection.pk])
    return {"box": box, "page": page, "crop": crop_link(box.detection)}
