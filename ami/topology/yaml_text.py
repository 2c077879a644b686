"""YAML output: keys in their given order, lines of up to 120 characters, written by libyaml."""

from typing import Any

import yaml


def dump(file: dict[str, Any]) -> str:
    return yaml.dump(file, Dumper=yaml.CSafeDumper, sort_keys=False, width=120, default_flow_style=False)
