"""Mutation testing of the code that carries the guarantees: `make mutants`.

mutmut breaks one expression at a time and runs the tests of that code; what no test notices has survived. What is
broken, by which rules, with which tests, and which survivors are known with their reasons: `tests/mutants.toml`.
"""
