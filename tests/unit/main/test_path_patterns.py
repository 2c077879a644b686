"""Path patterns of members, compiled within limits of memory and time."""

import resource

import pytest
from django.core.exceptions import ValidationError

from ami.main.models import Deployment
from ami.main.services.path_patterns import TOO_COSTLY, PatternRefused, compiled, problem_of

#: A child process compiles each pattern.
pytestmark = pytest.mark.processes
GROWN_KIB = 64 * 1024


@pytest.mark.parametrize("pattern", ["((((a{100}){100}){100}){100})", "(" * 60 + "a" + "+)" * 60 + "+"])
def test_pattern_of_nested_repeats_is_refused_without_memory_cost(pattern):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert problem_of(pattern) == TOO_COSTLY
    with pytest.raises(PatternRefused):
        compiled(pattern)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWN_KIB


def test_valid_pattern_matches_and_invalid_one_has_a_reason():
    assert compiled(r"^night_\d{4}-\d{2}-\d{2}/.*\.jpe?g$").match("night_2024-06-01/é 1.jpg")
    assert problem_of("") == ""
    assert problem_of("(").startswith("Does not compile: missing )")


def test_the_admins_form_refuses_such_a_pattern_too():
    with pytest.raises(ValidationError, match="data_source_regex"):
        Deployment(data_source_regex="(((a{1000}){1000}){1000})").clean()
