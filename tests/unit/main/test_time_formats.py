"""A station's own format of times in file names."""

import pytest
from django.core.exceptions import ValidationError

from ami.main.models import Deployment
from ami.main.services.time_formats import problem_of, time_by_format

READ = [
    ("%d-%m-%Y_%H-%M-%S", "trap 1_10-08-2022_23-26-37_001.jpg", "2022-08-10 23:26:37"),
    ("%d%m%Y%H%M%S", "10082022232637.jpg", "2022-08-10 23:26:37"),
    ("%Y%m%d_%H%M", "20220810_2326.jpg", "2022-08-10 23:26:00"),
    ("%Y%m%d%H%M", "Ring_202208102326.jpg", "2022-08-10 23:26:00"),
    ("%y-%m-%d_%H-%M-%S", "image22-08-10_23-26-37-12.jpg", "2022-08-10 23:26:37"),
    ("%m-%d-%Y %I.%M.%S %p", "08-10-2022 11.26.37\u202fPM.jpg", "2022-08-10 23:26:37"),
    ("%d %b %Y %H:%M", "10 Aug 2022 23:26.jpg", "2022-08-10 23:26:00"),
    ("%d.%m.%Y %H.%M", "1.8.2022 9.05.jpg", "2022-08-01 09:05:00"),
    ("%Y%m%d/%H/%M", "cam/20220810/23/26.jpg", "2022-08-10 23:26:00"),
    ("%Y-%j-%H%M%S", "2022-222-232637.jpg", "2022-08-10 23:26:37"),
    ("%Y%m%d%H%M%S%z", "20220810232637-0500.jpg", "2022-08-10 23:26:37-05:00"),
    ("%d%m%Y_%H%M%S.%f", "10082022_232637.5.jpg", "2022-08-10 23:26:37.500000"),
    ("%d-%m-%Y_%H-%M", "10-08-2022_24-05.jpg", "2022-08-10 00:05:00"),
    ("%d-%m-%Y_%H-%M", "01-01-2022_00-00_10-08-2022_23-26.jpg", "2022-08-10 23:26:00"),
    ("100%%_%d-%m-%Y_%H-%M", "100%_10-08-2022_23-26.jpg", "2022-08-10 23:26:00"),
]


@pytest.mark.parametrize(("form", "name", "moment"), READ)
def test_name_is_read_by_the_stations_format(form, name, moment):
    assert problem_of(form) == ""
    assert str(time_by_format(name, form)) == moment


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("%d%m%Y%H%M", "1108202223261.jpg"),
        ("%d%m%Y%H%M", "10820222326.jpg"),
        ("%d-%m-%Y_%H-%M", "30-02-2022_23-26.jpg"),
        ("%d-%m-%Y_%H-%M", "10-08-1999_23-26.jpg"),
        ("%d-%m-%Y_%H-%M", "20220810232637.jpg"),
        ("%d-%m-%Y_%H-%M", "10-08-2022_23-26/moth.jpg"),
        ("%Y.%m.%d_%H-%M", "2022x08x10_23-26.jpg"),
    ],
)
def test_name_of_another_format_has_no_time(form, name):
    assert time_by_format(name, form) is None


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("%d-%m_%H-%M", "a year"),
        ("%Y-%m_%H-%M", "a day"),
        ("%Y-%m-%d", "an hour"),
        ("%Y-%m-%d_%H", "a minute"),
        ("%Y-%m-%d_%I-%M", "needs '%p'"),
        ("%Y-%m-%d_%H-%M-%S %p", "needs '%I'"),
        ("%Y-%m-%d_%p_%M", "needs '%I'"),
        ("%Y-%m-%d_%H-%M_%q", "'%q' is not known"),
        ("%Y-%m-%d_%H-%M_%Z", "'%Z' is not known"),
        ("%c", "'%c' is not known"),
        ("%Y-%m-%d_%H-%M_%Y", "occurs twice"),
        ("%Y-%m-%d_%H-%M%", "without a directive"),
        ("text", "a year"),
        ("%Y" + "x" * 200, "100 characters"),
    ],
)
def test_format_that_cannot_be_used_is_refused_with_a_remedy(form, reason):
    assert reason in problem_of(form)
    with pytest.raises(ValidationError, match="data_source_time_format"):
        Deployment(data_source_time_format=form).clean()


def test_costly_format_is_searched_in_bounded_time():
    form = "1".join(["", "%d", "%m", "%y", "%H", "%M", "%S", "%f", ""])
    assert time_by_format("1" * 1024, form) is None
