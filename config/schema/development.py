"""What only a developer's machine, the demo and the tests read."""

from ami.environment.declaration import Variables, variable


class Development(Variables):
    """A developer's machine and the tests; no deployment reads these"""

    django_debug: bool = variable(True, "Whether local settings show tracebacks in the browser.")
    antenna_provision_skip: str = variable(
        "", "Ways in which `python -m provision` does not start a service, separated by commas.", example="apt,compose"
    )
    antenna_token: str = variable(
        "", "The API token of `python -m processing_service`, which runs elsewhere.", secret=True
    )
    antenna_test_folder: str = variable("", "The folder of the test suite's files.")
    antenna_soak: bool = variable(False, "Whether tests run in their long form; set by `make soak`.")
    antenna_engine_required: bool = variable(
        False, "Whether the tests in containers fail, instead of being skipped, without a container engine."
    )
    antenna_test_s3_url: str = variable("", "An object storage for the test suite.", secret=True)
    antenna_test_cgroup: str = variable("", "The cgroup in which the test suite makes its own.")
    antenna_benchmark_worker: str = variable("", "Which worker a benchmark starts.")
