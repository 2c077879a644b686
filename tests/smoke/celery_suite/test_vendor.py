"""What these tests bring along stays among them."""

from celery import current_app

from config import celery_app


def test_pytest_celery_leaves_this_process_its_application_and_its_tasks():
    assert current_app._get_current_object() is celery_app
    assert [name for name in celery_app.tasks if name.startswith("pytest_celery.")] == []
