"""The version of the package, as the seed's library has one."""

__version__ = "0.1.0"
