"""The tests, as a package: `tests.conftest` has one name."""
