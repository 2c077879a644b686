"""Answers an API path with and without its last slash, without a redirect: a POST would lose its body by one."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.urls import is_valid_path

PREFIX = "/api/"


class EitherSlashMiddleware:
    """Adds or removes the last slash of an API path that exists only so; place it before ``CommonMiddleware``."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        if path.startswith(PREFIX) and not is_valid_path(path):
            other = path[:-1] if path.endswith("/") else f"{path}/"
            if not path.endswith("//") and is_valid_path(other):
                request.path = request.path.removesuffix(path) + other
                request.path_info = other
        return self._get_response(request)
