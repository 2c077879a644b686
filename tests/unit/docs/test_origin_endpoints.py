"""The origin's endpoints that are here stay here, and the list of the others is exact."""

from tests.support import origin_endpoints

#: What pull workers and the origin's clients call.
CONTRACT = {
    ("POST", "/api/v2/auth/token/login/"),
    ("GET", "/api/v2/projects/"),
    ("POST", "/api/v2/projects/{id}/pipelines/"),
    ("GET", "/api/v2/jobs/"),
    ("POST", "/api/v2/jobs/"),
    ("POST", "/api/v2/jobs/{id}/tasks/"),
    ("POST", "/api/v2/jobs/{id}/result/"),
    ("POST", "/api/v2/jobs/{id}/run/"),
    ("POST", "/api/v2/jobs/{id}/retry/"),
    ("POST", "/api/v2/jobs/{id}/cancel/"),
}


def test_list_of_missing_endpoints_is_exact():
    here = origin_endpoints.ours()
    assert here & origin_endpoints.of_the_origin() >= CONTRACT
    assert origin_endpoints.PAGE.read_text() == origin_endpoints.page(here)


def test_endpoint_that_goes_missing_changes_the_page():
    here = origin_endpoints.ours()
    assert origin_endpoints.page(here - {("POST", "/api/v2/jobs/{id}/run/")}) != origin_endpoints.page(here)
