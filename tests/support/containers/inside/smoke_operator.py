"""Makes an operator with a token, and something to ask for over the API; prints both as JSON."""

import json
import secrets

import django


def main() -> None:
    """Print the token, and the path to which a POST publishes a task."""
    from django.contrib.auth import get_user_model

    from ami.main.services import tokens
    from ami.ml.models import ProcessingService

    name = secrets.token_hex(4)
    user = get_user_model().objects.create_superuser(email=f"{name}@smoke.example", password=secrets.token_hex())
    service = ProcessingService.objects.create(name=name, endpoint_url="http://processing:2000")
    _, key = tokens.issue(user, name="smoke test")
    print(json.dumps({"token": key, "path": f"/api/v2/ml/processing_services/{service.pk}/check/"}))


if __name__ == "__main__":
    django.setup()
    main()
