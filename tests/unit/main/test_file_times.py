"""Times in file names: every usual form is read, and what could mean two things is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ami.main.services.file_times import time_in_name, zone_of

EVENING = "2022-08-10 23:26:37"

READ = {
    # One stamp, with any of the usual separators or none.
    "20220810232637-00-16.jpg": EVENING,
    "01-20220810232637-snapshot.jpg": EVENING,
    "a/b/2022-08-10_23-26-37.jpg": EVENING,
    "2022-08-10 23:26:37.jpg": EVENING,
    "2022:08:10 23:26:37.jpg": EVENING,
    "2022 08 10 23 26 37.jpg": EVENING,
    "2022_08_10__23_26_37.jpg": EVENING,
    "2022-08-10 - 23-26-37.jpg": EVENING,
    "snap-2022.08.10-23.26.37-01.jpg": EVENING,
    "snap-2022.08.10-10.11.12-13.jpg": "2022-08-10 10:11:12",
    "StationA__Camera1__2022-08-10__23-26-37(1).JPG": EVENING,
    "Mothbox_2022_08_10__23_26_37_HDR0.jpg": EVENING,
    "IMG_20220810_232637.jpg": EVENING,
    "WIN_20220810_23_26_37_Pro.jpg": EVENING,
    "Screenshot_2022-08-10-23-26-37.png": EVENING,
    "2022-08-10_232637.jpg": EVENING,
    "WhatsApp Image 2022-08-10 at 23.26.37 (1).jpeg": EVENING,
    "Capture d’écran 2022-08-10 à 23.26.37.png": EVENING,
    "Capture d’écran 2022-08-10 a\u0300 23.26.37.png": EVENING,
    "Captura de pantalla 2022-08-10 a las 23.26.37.png": EVENING,
    "Skärmavbild 2022-08-10 kl. 23.26.37.png": EVENING,
    "2022-08-10T23\uff1a26\uff1a37.jpg": EVENING,
    "2022-08-10T23\uf03a26\uf03a37.jpg": EVENING,
    "site_1_2_2022-08-10_23-26-37.jpg": EVENING,
    "1920x1080_20220810232637.jpg": EVENING,
    "192.168.1.64_2022-08-10_23-26-37.jpg": EVENING,
    "20220810_232637_001.jpg": EVENING,
    "20220810232637.1.jpg": EVENING,
    "2022-8-9 9:26:37.jpg": "2022-08-09 09:26:37",
    # Fractions.
    "PXL_20220810_232637123.jpg": f"{EVENING}.123000",
    "cam_20220810232637123_MOTION.jpg": f"{EVENING}.123000",
    "20220810-232637.123456.jpg": f"{EVENING}.123456",
    "2022-08-10T23:26:37.5Z.jpg": f"{EVENING}.500000+00:00",
    "vlcsnap-2022-08-10-23h26m37s123.png": f"{EVENING}.123000",
    # Two-digit years.
    "220810232637-00-23.jpg": EVENING,
    "site1-220810232637.jpg": EVENING,
    "220810_232637.jpg": EVENING,
    "220810_23-26-37.jpg": EVENING,
    "220810231637.jpg": "2022-08-10 23:16:37",
    "230601231507.jpg": "2023-06-01 23:15:07",
    # Of two stamps the last that is one.
    "TRAP_20220101000000_20220810232637.jpg": EVENING,
    "20220101000000_220810232637.jpg": EVENING,
    "2022-01-01-10-11-12-2022-08-10-23-26-37.jpg": EVENING,
    "20220101-10-11-12-2022-08-10-23-26-37.jpg": EVENING,
    "20220101-00-00-00-2022-08-10-232637.jpg": EVENING,
    "20221301000000_20220810232637.jpg": EVENING,
    "20220810232637_19700101000000.jpg": EVENING,
    "20220810232637_20220811.jpg": EVENING,
    # Zones.
    "20220810T232637Z.jpg": f"{EVENING}+00:00",
    "20220810232637Zebra.jpg": EVENING,
    "2022-08-10_23-26-37_UTC.jpg": f"{EVENING}+00:00",
    "20220810-232637-UTC.jpg": f"{EVENING}+00:00",
    "2022-08-10 23.26.37 (UTC).jpg": f"{EVENING}+00:00",
    "20220810T232637+0200.jpg": f"{EVENING}+02:00",
    "20220810232637+0545.jpg": f"{EVENING}+05:45",
    "2022-08-10 23:26:37+02.jpg": f"{EVENING}+02:00",
    "20220810T232637+9900.jpg": EVENING,
    "2022-08-10T23-26-37-0500.jpg": f"{EVENING}-05:00",
    "2022-08-10 23:26:37-05:00.jpg": f"{EVENING}-05:00",
    "2022-08-10T23-26-37.123456-05-00.jpg": f"{EVENING}.123456-05:00",
    "2022-08-10T23_26_37-03_30.jpg": f"{EVENING}-03:30",
    "2022-08-10T23_26_37+05_30.jpg": f"{EVENING}+05:30",
    "2022-08-10T23\uff1a26\uff1a37+05\uff1a30.jpg": f"{EVENING}+05:30",
    "20220810T232637-05-00.jpg": EVENING,
    "2022-08-10T23-26-37-123Z.jpg": f"{EVENING}.123000+00:00",
    "2022-08-10T23_26_37_123456+00_00.jpg": f"{EVENING}.123456+00:00",
    "2022-08-10T23-26-37-123.jpg": EVENING,
    "20220810T232637+02-01.jpg": f"{EVENING}+02:00",
    "20220810T232637_-0500.jpg": f"{EVENING}-05:00",
    "20220810_232637-GMT+2.jpg": f"{EVENING}+02:00",
    "20220810_232637_GMT+05_30.jpg": f"{EVENING}+05:30",
    "2022-08-10T23-26-37-00-23.jpg": EVENING,
    "2022-08-10_23-26-37-05-00.jpg": EVENING,
    "2022-08-10_23-26-37-0500.jpg": EVENING,
    "20220810T232637-0001.jpg": EVENING,
    # AM and PM, and the hour 24.
    "IMG 2022-08-10 11.26.37 PM.jpg": EVENING,
    "Screenshot 2022-08-10 at 11.26.37\u202fPM.png": EVENING,
    "2022-08-10 at 11.26.37 p.m.jpg": EVENING,
    "2022-08-10 11.26.37  PM.jpg": EVENING,
    "2022-08-10 11.26.37.PM.jpg": EVENING,
    "2022-08-10 11.26.37 (PM).jpg": EVENING,
    "2022-08-10 11-26-37-123 PM.jpg": f"{EVENING}.123000",
    "20220810_112637PM.jpg": EVENING,
    "2022-08-10 9.26.37 pm.jpg": "2022-08-10 21:26:37",
    "2022-08-10 12.05.00 AM.jpg": "2022-08-10 00:05:00",
    "2022-08-10 12.05.00 PM.jpg": "2022-08-10 12:05:00",
    "20220810T240537.jpg": "2022-08-10 00:05:37",
    # A time alone in a folder of a date.
    "2022-08-10/23-26-37.jpg": EVENING,
    "trap/20220810/232637.jpg": EVENING,
    "trap/20220810/012637.jpg": "2022-08-10 01:26:37",
    "2022-08-10/T002637.jpg": "2022-08-10 00:26:37",
    "2022-08-10/23.26.37[M][0@0][0].jpg": EVENING,
    "2022/08/10/23.26.37.jpg": EVENING,
    "2022-08-10/snap_23-26-37-00.jpg": EVENING,
    "2022-08-10/cam1 11.26.37 PM.jpg": EVENING,
    "2022-08-10/T232637Z.jpg": f"{EVENING}+00:00",
    "2022-08-09/20220810232637.jpg": EVENING,
    # The bounds.
    "20000101000000.jpg": "2000-01-01 00:00:00",
    "20991231235959.jpg": "2099-12-31 23:59:59",
    "20240229101010.jpg": "2024-02-29 10:10:10",
}

UNREAD = [
    # A day or a month first, also where the rest looks like a stamp.
    "10-08-2022_23-26-37.jpg",
    "10082022232637.jpg",
    "10-08-2022-10-12-11-00-23.jpg",
    "10.08.2022_10_12_11_00_23.jpg",
    "10-08-22_23-26-37.jpg",
    "22-08-10_23-26-37.jpg",
    "100822232637.jpg",
    "310822232637.jpg",
    "2022-08-10/10-08-2022_23-26-37.jpg",
    "2022-08-10/22-08-11_01-26-37.jpg",
    # The half of the day in another language.
    "2022-08-10 11.26.37 \u4e0b\u5348.png",
    "2022-08-10 11.26.37\uc624\ud6c4.png",
    "2022-08-10, 11.26.37 \u03bc.\u03bc..png",
    # The date of the folder once more.
    "2022-08-10/220810_001.jpg",
    "2010-08-12/12-08-10.jpg",
    # Minutes without seconds, and what could be that or a two-digit year.
    "20220810_2326.jpg",
    "202208102326-37.jpg",
    "20220810_2326_37.jpg",
    "201210102010.jpg",
    "201210102010Z.jpg",
    "230820222326.jpg",
    "2022-08-10-1-23-26-37.jpg",
    "20220810_1-10-11-12.jpg",
    # Counters and serial numbers.
    "120260601231500.jpg",
    "202208102326371.jpg",
    "20220810_2326371.jpg",
    "2022-08-10/000123.jpg",
    "2022-08-10/005959.jpg",
    "2022-08-10/IMG_123456.jpg",
    "2022-08-10/01-23-26-37.jpg",
    "20991399999999.jpg",
    "1660173997.jpg",
    "1660173997123.jpg",
    "cam-1660173997.123456-abc.jpg",
    "08100001.JPG",
    "IMG-20220810-WA0001.jpg",
    "550e8400-e29b-41d4-a716-220810232637.jpg",
    "3f20220810123456ab9c3f20220810ff.jpg",
    # No such date or time, or none in the name.
    "20220230101010.jpg",
    "20220229101010.jpg",
    "20220810250000.jpg",
    "20220810235960.jpg",
    "2022-08-45-26-37.jpg",
    "2022-08-10 13.26.37 AM.jpg",
    "19991231235959.jpg",
    "\uff12\uff10\uff12\uff12\uff10\uff18\uff11\uff10\uff12\uff13\uff12\uff16\uff13\uff17.jpg",
    "20220810232637/moth.jpg",
    "session_20220810/23-26-37.jpg",
    "moth.jpg",
    "",
]


def test_usual_forms_are_read():
    assert {name: str(time_in_name(name)) for name in READ} == READ


def test_what_could_mean_two_things_is_not_read():
    assert {name: found for name in UNREAD if (found := time_in_name(name))} == {}


@pytest.mark.parametrize("text", ["+1500", "-1300", "+0217", "-0000", "+", "02:00", "", "EST"])
def test_text_that_is_no_offset_names_no_zone(text):
    assert zone_of(text) is None


@given(st.text(alphabet="0123456789-_.: TZ+APMhms/a\u202f", max_size=80))
def test_any_name_raises_nothing_and_has_a_time_from_2000_on(name):
    moment = time_in_name(name)
    assert moment is None or moment.year >= 2000


@pytest.mark.parametrize("piece", ["20", "2022-08-10-", "20220810T", "a1-", "1-", "20220810232637", "2022-08-10/a1-"])
def test_hostile_long_name_is_read_in_bounded_steps(piece):
    assert time_in_name(piece * (1024 // len(piece)) + "x") is None
