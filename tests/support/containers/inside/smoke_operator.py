"""Makes an operator with a token, and something to ask for over the API; prints both as JSON."""

import json
import secrets

import django


def main() -> None:
    """Print the token, and the path to which a POST publishes a task."""
    from django.contrib.auth import get_user_model

    from ami.main.models import Deployment, Project
    from ami.main.services import tokens

    name = secrets.token_hex(4)
    user = get_user_model().objects.create_superuser(email=f"{name}@smoke.example", password=secrets.token_hex())
    station = Deployment.objects.create(project=Project.objects.create(name=name), name=name)
    _, key = tokens.issue(user, name="smoke test")
    print(json.dumps({"token": key, "path": f"/api/v2/deployments/{station.pk}/regroup-sessions/"}))


if __name__ == "__main__":
    django.setup()
    main()
