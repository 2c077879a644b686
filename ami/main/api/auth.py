"""Sign-in with e-mail and password for a token, and sign-out."""

from typing import Any

from django.contrib.auth import authenticate
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import Throttled
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ami.main.api.budgets import LOGIN
from ami.main.api.parameters import KnownParameters
from ami.main.api.throttles import LoginAddressThrottle
from ami.main.models import ApiToken
from ami.main.services import login_attempts, tokens
from ami.main.services.client_address import address_of


class LoginSerializer(serializers.Serializer[Any]):
    """The credentials of a user or a worker."""

    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)


class TokenSerializer(serializers.Serializer[Any]):
    """The token for the header ``Authorization: Token ...``."""

    auth_token = serializers.CharField()


class LoginView(KnownParameters, APIView):
    """`POST auth/token/login/`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = (LoginAddressThrottle,)
    budget = LOGIN

    @extend_schema(request=LoginSerializer, responses=TokenSerializer)
    def post(self, request: Request) -> Response:
        """Return a new token. A wrong password and an unknown e-mail address get the same response."""
        credentials = LoginSerializer(data=request.data)
        credentials.is_valid(raise_exception=True)
        email = credentials.validated_data["email"].lower()
        if wait_seconds := login_attempts.count_account(address_of(request), email):
            raise Throttled(wait_seconds)
        user = authenticate(request, username=email, password=credentials.validated_data["password"])
        if user is None:
            raise serializers.ValidationError({"non_field_errors": ["E-mail address or password is wrong."]})
        return Response({"auth_token": tokens.sign_in(user)})


class LogoutView(KnownParameters, APIView):
    """`POST auth/token/logout/`."""

    permission_classes = (IsAuthenticated,)

    def admits_worker(self, request: Request) -> bool:  # noqa: ARG002
        return True

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request) -> Response:
        """Delete the token of this request; the user's other tokens stay valid."""
        if isinstance(request.auth, ApiToken):
            request.auth.delete()
        return Response(status=status.HTTP_204_NO_CONTENT)
