#!/usr/bin/env python3
"""Manifests that `mxrun --launcher k8s --dry-run` prints, against the schemas of Kubernetes and of JobSet.

They are validated if the Python that MX_TEST_PYTHON names has the packages kubernetes-validate and
kubeflow-trainer-api.
"""

import os
import subprocess
import sys
import unittest

import jobs

VALIDATE = r"""
import sys, yaml, kubernetes_validate
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet

def without_defaults(value):
    if isinstance(value, dict):
        return {k: without_defaults(v) for k, v in value.items() if v is not None}
    return [without_defaults(v) for v in value] if isinstance(value, list) else value

version = kubernetes_validate.latest_version()
for document in yaml.safe_load_all(sys.stdin):
    if document["kind"] == "JobSet":
        read = without_defaults(JobsetV1alpha2JobSet.from_dict(document).to_dict())
        assert read == document, "the models of JobSet drop or change fields"
        for job in document["spec"]["replicatedJobs"]:
            kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
                                          "spec": job["template"]["spec"]}, version, strict=True)
    else:
        kubernetes_validate.validate(document, version, strict=True)
    print("valid", document["kind"])
"""
PYTHON = os.environ.get("MX_TEST_PYTHON", sys.executable)
HAS_SCHEMAS = subprocess.run([PYTHON, "-c", "import yaml, kubernetes_validate, kubeflow_trainer_api"],
                             capture_output=True, check=False).returncode == 0
SETTINGS = ("--launcher", "k8s", "--dry-run", "--job-id", "digits", "--k8s", "image=example.org/mx:1,cpu=2,memory=4Gi")


class Manifests(jobs.JobTest):
    def manifests(self, *arguments):
        job = self.run_job(*SETTINGS, *arguments)
        self.assertEqual(job.code, 0, job.stderr)
        return job.stdout

    @unittest.skipUnless(HAS_SCHEMAS, "no kubernetes-validate and kubeflow-trainer-api")
    def test_schemas(self):
        cases = [
            (("-n", "4"), ["valid Service", "valid Job"]),
            (("-n", "4", "-s", "2"), ["valid JobSet"]),
            (("-n", "2", "--k8s", "kind=jobset,gpus=2,namespace=train"), ["valid JobSet"]),
            (("-x", "A=yes: no # $(B) \u00fc", "--k8s", "gpus=1,interface=net1,port=1234"), ["valid Service", "valid Job"]),
        ]
        for arguments, kinds in cases:
            with self.subTest(arguments=arguments):
                text = self.manifests(*arguments, "train", "--lr", "0.1", "it's: \"x\"\n- y")
                done = subprocess.run([PYTHON, "-c", VALIDATE], input=text, capture_output=True, text=True, check=False)
                self.assertEqual(done.stdout.splitlines(), kinds, done.stderr + text)

    def test_what_a_job_needs(self):
        text = self.manifests("-n", "4", "train")
        for part in ("completionMode: Indexed", "parallelism: 4", "backoffLimit: 0", "restartPolicy: Never",
                     "clusterIP: None", "defaultMode: 384", "digits-0.digits:29500"):
            self.assertIn(part, text)

    def test_bad_input(self):
        for arguments, message in [
            (("--launcher", "k8s", "train"), "--dry-run"),
            (("--launcher", "k8s", "--dry-run", "--job-id", "digits", "train"), "--k8s image"),
            ((*SETTINGS, "--k8s", "name=Not_A_Name", "train"), "--k8s name"),
            ((*SETTINGS, "--k8s", "color=red", "train"), "'color'"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_one_line(self.run_job(*arguments), 2, ".*" + message)


if __name__ == "__main__":
    jobs.main()
