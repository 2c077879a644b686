"""The models of the product's core, one module per noun."""

from ami.main.models.base import TimestampedModel
from ami.main.models.captures import SourceImage, SourceImageCollection
from ami.main.models.maintenance import BulkDeletion, LoginAttempts
from ami.main.models.occurrences import Classification, Detection, Identification, Occurrence
from ami.main.models.projects import Device, Project, Site
from ami.main.models.stations import Deployment, Event, S3StorageSource
from ami.main.models.taxa import TaxaList, Taxon
from ami.main.models.tokens import ApiToken
from ami.main.models.users import User

__all__ = [
    "ApiToken",
    "BulkDeletion",
    "Classification",
    "Deployment",
    "Detection",
    "Device",
    "Event",
    "Identification",
    "LoginAttempts",
    "Occurrence",
    "Project",
    "S3StorageSource",
    "Site",
    "SourceImage",
    "SourceImageCollection",
    "TaxaList",
    "Taxon",
    "TimestampedModel",
    "User",
]
