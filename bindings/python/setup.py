"""Builds a wheel for one platform, with the shared library inside that `make python` copies into the package."""

from setuptools import setup
from setuptools.dist import Distribution

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class PlatformDistribution(Distribution):
    """A package with a shared library."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The library knows nothing of Python, so that one wheel serves all versions."""

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(distclass=PlatformDistribution, cmdclass={"bdist_wheel": AnyPython})
