# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one class by name, so that each is a CTest test of its own."""

import sys
import unittest


def main(test_class):
    names = unittest.TestLoader().getTestCaseNames(test_class)
    if sys.argv[1:] == ["--list"]:
        print("\n".join(name.removeprefix("test_") for name in names))
        return
    chosen = ["test_" + name for name in sys.argv[1:]] or names
    suite = unittest.TestSuite(test_class(name) for name in chosen)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
