"""Running the real clients without their checkouts says loudly that nothing ran."""

import subprocess
import sys

import pytest

from tests.support.place import ROOT


@pytest.mark.processes
def test_clients_without_a_checkout_are_named_and_the_exit_code_is_3(tmp_path):
    argv = [sys.executable, "-m", "tests.contract", "--adc-source", str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("NOT RUN: the ")) == (3, 3), done.stderr
