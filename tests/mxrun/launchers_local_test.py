#!/usr/bin/env python3
"""The agent as a child of mxrun, on one node."""

import jobs
import launcher_suite


class Local(launcher_suite.LauncherSuite, jobs.JobTest):
    NODES = (0, 0, 0, 0)
    PASSES_STDIN = True

    def start_ranks(self, *arguments, **options):
        return self.start("--launcher", "local", "-n", "4", *arguments, **options)


if __name__ == "__main__":
    launcher_suite.main()
