"""Chromium for tests: the process, its protocol over a pipe, a page as a user sees it, and axe-core."""
