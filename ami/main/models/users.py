"""Users, who sign in with their e-mail address."""

from typing import Any

from django.contrib.auth.models import AbstractUser, BaseUserManager
from django.db import models


class UserManager(BaseUserManager["User"]):
    """Creates users by e-mail address; there is no user name."""

    use_in_migrations = True

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        """Create a user; without a password the account cannot sign in.

        Raises:
            ValueError: the e-mail address is empty.
        """
        if not email:
            raise ValueError("email is empty; a user signs in with it.")
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, **{"is_staff": True, "is_superuser": True, **fields})

    def get_by_natural_key(self, username: str | None) -> "User":
        """Find a user by e-mail address, ignoring case."""
        return self.get(email__iexact=username or "")


class User(AbstractUser):
    """An account of a person or a processing worker."""

    username = None  # type: ignore[assignment]
    email = models.EmailField("e-mail address", unique=True)
    name = models.CharField(max_length=255, blank=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: list[str] = []

    objects = UserManager()  # type: ignore[misc,assignment]

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save; a new password revokes the user's tokens, as it ends their sessions. Workers' tokens stay valid."""
        from ami.main.models.tokens import ApiToken

        # Django keeps the password here until it is saved. It is None when a login only rehashes the password.
        is_new_password = self._password is not None and not self._state.adding  # type: ignore[attr-defined]
        super().save(*args, **kwargs)
        if is_new_password:
            ApiToken.objects.filter(user=self, scope=ApiToken.Scope.PERSON).revoke()
