"""Sign in with e-mail and password for a token; sign out to make it worthless."""

from typing import Any

from django.contrib.auth import authenticate
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from ami.main import tokens
from ami.main.models import ApiToken


class LoginThrottle(SimpleRateThrottle):
    """Counts attempts per address and e-mail, so that nobody can lock another person's address out."""

    scope = "login"

    def get_cache_key(self, request: Request, view: APIView) -> str:  # noqa: ARG002
        """Return the key under which this caller's attempts are counted."""
        email = request.data.get("email", "") if isinstance(request.data, dict) else ""
        # As the login reads it: spaces around and the case, also of letters that only a database folds, do not count.
        ident = f"{self.get_ident(request)}:{str(email).strip().upper()[:254]}"
        return self.cache_format % {"scope": self.scope, "ident": "".join(c if c.isalnum() else "_" for c in ident)}


class LoginSerializer(serializers.Serializer[Any]):
    """What a person or a worker signs in with."""

    email = serializers.EmailField(max_length=254)
    password = serializers.CharField(max_length=1024, trim_whitespace=False, write_only=True)


class TokenSerializer(serializers.Serializer[Any]):
    """The token for the header ``Authorization: Token ...``."""

    auth_token = serializers.CharField()


class LoginView(APIView):
    """`POST auth/token/login/`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_classes = (LoginThrottle,)

    @extend_schema(request=LoginSerializer, responses=TokenSerializer)
    def post(self, request: Request) -> Response:
        """Return a new token of the person's. A wrong password and an unknown e-mail address answer the same."""
        asked = LoginSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        email = asked.validated_data["email"].lower()
        user = authenticate(request, username=email, password=asked.validated_data["password"])
        if user is None:
            raise serializers.ValidationError({"non_field_errors": ["E-mail address or password is wrong."]})
        return Response({"auth_token": tokens.sign_in(user)})


class LogoutView(APIView):
    """`POST auth/token/logout/`."""

    permission_classes = (IsAuthenticated,)

    def admits_worker(self, request: Request) -> bool:  # noqa: ARG002
        """A worker, too, may end its token."""
        return True

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request) -> Response:
        """Delete the token of this request; the caller's others go on."""
        if isinstance(request.auth, ApiToken):
            request.auth.delete()
        return Response(status=status.HTTP_204_NO_CONTENT)
