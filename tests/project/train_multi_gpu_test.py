#!/usr/bin/env python3
"""train_multi_gpu on simulated devices: losses that do not depend on their number. Usage: ... PROGRAM DATA"""

import os
import re
import subprocess
import sys
import unittest

PROGRAM = DATA = ""


def run(*arguments):
    # No GPU, so that the devices are simulated everywhere.
    return subprocess.run(
        [PROGRAM, "--data", DATA, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "MX_VIRTUAL_DEVICES": "4"},
    )


class MultiGpu(unittest.TestCase):
    def losses(self, *arguments):
        result = run("--steps", 101, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("devices from virt(0)", result.stdout)
        losses = re.findall(r"step (\d+): loss (\S+)", result.stdout)
        self.assertEqual([int(step) for step, _ in losses], [1, 100, 101], result.stdout)
        return [loss for _, loss in losses]

    def test_several_devices_have_the_bits_of_one_with_the_same_parts(self):
        for parts, devices in ((2, (1, 2)), (4, (1, 2, 4))):
            results = [self.losses("--devices", n, "--parts", parts) for n in devices]
            for result in results[1:]:
                self.assertEqual(result, results[0])

    def test_several_devices_have_nearly_the_losses_of_one(self):
        one, two = self.losses("--devices", 1), self.losses("--devices", 2)
        self.assertLess(float(one[-1]), 0.6 * float(one[0]))
        for a, b in zip(one, two):
            self.assertAlmostEqual(float(a), float(b), delta=1e-4 * float(a))

    def test_wrong_arguments_are_refused(self):
        for arguments, status, text in (
            (("--devices", 0), 2, "--devices"),
            (("--devices", "two"), 2, "--devices"),
            (("--devices", 5), 1, "expected at most 0 GPUs or 4 simulated devices"),
            (("--devices", 2, "--parts", 3), 1, "expected a multiple of the 2 devices, got 3"),
            (("--devices", 3), 1, "expected a multiple of the 3 parts of a batch, got 64"),
            (("--epochs", 0), 2, "--epochs"),
            (("--steps", -1), 2, "--steps"),
        ):
            with self.subTest(arguments=arguments):
                result = run(*arguments)
                self.assertEqual(result.returncode, status, result.stderr)
                self.assertIn(text, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1)


if __name__ == "__main__":
    PROGRAM, DATA = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
