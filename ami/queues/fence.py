"""What fenced tasks call in each transaction, and what ends them: see `ami.celery.fences`."""

from ami.celery.fences import FenceLost as FenceLost
from ami.celery.fences import check as check
