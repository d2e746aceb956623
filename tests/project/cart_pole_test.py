#!/usr/bin/env python3
"""cart_pole simulates the right physics and learns. Usage: ... PROGRAM SEEDS"""

import math
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SEEDS = 0
LIMITS = (2.4, math.radians(12))


def run(*arguments, **environment):
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def traced(*arguments, **environment):
    """Returns the output and the episodes: lists of (action, position, velocity, angle, spin)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace")
        result = run(*arguments, "--trace", path, **environment)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        with open(path, encoding="utf-8") as file:
            rows = [line.split() for line in file][1:]
    episodes = []
    for number, action, *state in rows:
        if int(number) == len(episodes):
            episodes.append([])
        assert int(number) == len(episodes) - 1
        episodes[-1].append((int(action), *map(float, state)))
    return result.stdout, episodes


def next_state(action, x, v, angle, spin):
    """Lagrange's equations of cart and uniform rod, solved as two linear ones by Cramer's rule:
        (M + m) x" + m l cos(a) a" = F + m l sin(a) a'^2
        cos(a) x" + 4/3 l a"       = g sin(a)
    followed by a step of Euler's method."""
    cart, pole, half, step = 1.0, 0.1, 0.5, 0.02
    force = 10.0 if action else -10.0
    a11, a12, b1 = cart + pole, pole * half * math.cos(angle), force + pole * half * math.sin(angle) * spin**2
    a21, a22, b2 = math.cos(angle), 4 / 3 * half, 9.8 * math.sin(angle)
    d = a11 * a22 - a12 * a21
    linear, angular = (b1 * a22 - a12 * b2) / d, (a11 * b2 - a21 * b1) / d
    return x + step * v, v + step * linear, angle + step * spin, spin + step * angular


def failed(state):
    return abs(state[0]) > LIMITS[0], abs(state[2]) > LIMITS[1]


class CartPole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runs = [traced("--seed", str(seed), "--episodes", "1000") for seed in range(SEEDS)]

    def test_every_step_obeys_the_equations(self):
        by_position = by_angle = 0
        actions = set()
        for _, episodes in self.runs:
            starts, apart = set(), 0
            self.assertLessEqual(max(map(len, episodes)), 200)
            for episode in episodes:
                starts.add(episode[0][1:])
                self.assertLessEqual(max(map(abs, episode[0][1:])), 0.05)
                for now, after in zip(episode, episode[1:] + [None]):
                    actions.add(now[0])
                    expected = next_state(*now)
                    if after is not None:
                        self.assertFalse(any(failed(after[1:])))
                        apart = max(apart, *(abs(a - b) for a, b in zip(after[1:], expected)))
                    elif len(episode) < 200:  # the episode ended because the pole or the cart failed
                        position, angle = failed(expected)
                        self.assertTrue(position or angle)
                        by_position += position
                        by_angle += angle
            self.assertLess(apart, 1e-12)
            self.assertEqual(len(starts), len(episodes))
        self.assertEqual(actions, {0, 1})
        self.assertGreater(by_position, 0)
        self.assertGreater(by_angle, 100)

    def test_learns_within_1000_episodes(self):
        for seed, (text, episodes) in enumerate(self.runs):
            with self.subTest(seed=seed):
                solved = re.search(r"^solved after (\d+) episodes$", text, re.MULTILINE)
                self.assertTrue(solved, text)
                lengths = [len(episode) for episode in episodes]
                self.assertEqual(int(solved.group(1)), len(lengths))
                self.assertLessEqual(len(lengths), 1000)
                self.assertGreaterEqual(sum(lengths[-100:]) / 100, 195)
                self.assertLess(sum(lengths[:20]) / 20, 60)  # the untrained agent is bad, so it must have learnt
                for count, said in re.findall(r"^ *(\d+) episodes: .*: (\S+)$", text, re.MULTILINE):
                    self.assertEqual(f"{sum(lengths[int(count) - 100 : int(count)]) / 100:.2f}", said)
                fresh = re.search(r"^mean length of 100 new episodes: (\S+) of 200$", text, re.MULTILINE)
                self.assertGreaterEqual(float(fresh.group(1)), 195)

    def test_without_learning_the_pole_falls(self):
        text, episodes = traced("--episodes", "0")
        self.assertEqual(episodes, [])
        self.assertIn("not solved after 0 episodes", text)
        self.assertLess(float(re.search(r"new episodes: (\S+) of 200", text).group(1)), 195)

    def test_the_seed_decides_everything(self):
        results = [traced("--episodes", "60", "--seed", "7", **environment) for environment in
                   [{"MX_NUM_THREADS": "1"}, {"MX_NUM_THREADS": "4"}, {"MX_ENGINE": "naive"}]]
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])
        self.assertNotEqual(results[0][1], traced("--episodes", "60", "--seed", "8")[1])

    def test_trace_that_cannot_be_written_fails(self):
        result = run("--episodes", "20", "--trace", "/nonexistent/folder/trace")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Acart_pole: .*/nonexistent/folder.*\n\Z")
        self.assertEqual(result.stdout, "")  # found out before learning

    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run("--seed", "-1").returncode, 2)


if __name__ == "__main__":
    PROGRAM, SEEDS = sys.argv.pop(1), int(sys.argv.pop(1))
    unittest.main()
