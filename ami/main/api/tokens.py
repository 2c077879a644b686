"""The user's API tokens: list, create and revoke."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from ami.main.api.fields import OwnProjectField
from ami.main.api.pagination import BoundedPagination
from ami.main.api.parameters import KnownParameters
from ami.main.models import ApiToken
from ami.main.services import tokens


class ApiTokenSerializer(serializers.ModelSerializer[ApiToken]):
    """A token without its key; a worker's token lists the projects whose work it fetches."""

    projects = OwnProjectField(many=True, required=False, default=list)

    class Meta:
        model = ApiToken
        fields = ("id", "name", "prefix", "scope", "projects", "created_at", "last_used_at", "expires_at")
        read_only_fields = ("prefix", "created_at", "last_used_at")
        extra_kwargs = {"name": {"required": True, "allow_blank": False}}

    def validate_expires_at(self, moment: Any) -> Any:
        if moment is not None and moment <= timezone.now():
            raise serializers.ValidationError("Must be in the future; leave it out for a token that does not expire.")
        return moment

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Accept projects for a worker's token only, and at most ``MAX_TOKENS`` tokens per scope."""
        scope = attrs.setdefault("scope", ApiToken.Scope.PERSON)
        is_worker = scope == ApiToken.Scope.WORKER
        if is_worker and not attrs["projects"]:
            raise serializers.ValidationError({"projects": ["A worker's token needs at least one project."]})
        if not is_worker and attrs["projects"]:
            raise serializers.ValidationError(
                {"projects": ["A person's token covers all their projects; leave it out."]}
            )
        own = ApiToken.objects.live().filter(user=self.context["request"].user, scope=scope)
        if own.count() >= tokens.MAX_TOKENS:
            raise serializers.ValidationError(
                {"scope": [f"You have {tokens.MAX_TOKENS} {scope} tokens; revoke one first."]}
            )
        return attrs


class NewApiTokenSerializer(ApiTokenSerializer):
    """A new token with its key, which is shown only once."""

    auth_token = serializers.CharField(read_only=True)

    class Meta(ApiTokenSerializer.Meta):
        fields = (*ApiTokenSerializer.Meta.fields, "auth_token")


class ApiTokenViewSet(
    KnownParameters,
    mixins.ListModelMixin,
    mixins.CreateModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[ApiToken],
):
    """The caller's tokens; deleting one revokes it."""

    queryset = ApiToken.objects.all()
    serializer_class = ApiTokenSerializer
    permission_classes = (IsAuthenticated,)
    pagination_class = BoundedPagination
    lookup_value_regex = r"\d{1,18}"

    def get_queryset(self) -> QuerySet[ApiToken]:
        return ApiToken.objects.live().filter(user=self.request.user).prefetch_related("projects")

    @extend_schema(responses={201: NewApiTokenSerializer})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # noqa: ARG002
        """Create a token; its key is in this response only."""
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        token, key = tokens.issue(request.user, **body.validated_data)
        data = ApiTokenSerializer(token, context=self.get_serializer_context()).data
        return Response({**data, "auth_token": key}, status=status.HTTP_201_CREATED)

    def perform_destroy(self, instance: ApiToken) -> None:
        ApiToken.objects.filter(pk=instance.pk).revoke()
