"""A project's default filters: which occurrences its counts include."""

from django.db.models import Q

from ami.main.models.projects import Project
from ami.main.models.taxa import Taxon


def default_filter(project: Project, occurrence: str = "") -> Q:
    """Return the condition for an occurrence to count in ``project``.

    ``occurrence`` is the lookup prefix to it, such as ``"occurrence__"`` from a detection. An unclassified occurrence
    has no score and no taxon to compare: it counts, unless the project lists taxa to include.
    """
    score, taxon = f"{occurrence}determination_score", f"{occurrence}determination"
    threshold = project.default_filters_score_threshold
    condition = Q(**{f"{score}__gte": threshold}) | Q(**{f"{score}__isnull": True})
    if included := set(project.default_filters_include_taxa.values_list("pk", flat=True)):
        condition &= Q(**{f"{taxon}__in": Taxon.with_descendants(included)})
    if excluded := set(project.default_filters_exclude_taxa.values_list("pk", flat=True)):
        outside = ~Q(**{f"{taxon}__in": Taxon.with_descendants(excluded)})
        condition &= Q(**{f"{taxon}__isnull": True}) | outside
    return condition
