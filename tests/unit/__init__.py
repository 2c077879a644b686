"""Tests without network; they mirror ami/."""
