"""The base class of every task of this project."""

from celery.contrib.django.task import DjangoTask


class Task(DjangoTask):
    """A Django task whose messages are settled by :class:`ami.queues.request.Request`."""

    abstract = True
    Request = "ami.queues.request:Request"

    #: Who publishes it, in an operator's words; `manage.py queues tasks` shows it.
    triggered_by = ""
