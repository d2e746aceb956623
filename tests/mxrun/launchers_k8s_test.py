#!/usr/bin/env python3
"""Manifests that `mxrun --launcher k8s --dry-run` prints, against the schemas of Kubernetes and of JobSet.

They are always compared with the table of fields in k8s_fields.py. They are validated too if the Python that
MX_TEST_PYTHON names has the packages kubernetes-validate and kubeflow-trainer-api.
"""

import copy
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

import jobs
import k8s_fields

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


# Options of mxrun, and the documents that it prints.
CASES = [
    (("-n", "4"), ["Service", "Job"]),
    (("-n", "4", "-s", "2"), ["JobSet"]),
    (("-n", "2", "--k8s", "kind=jobset,gpus=2,namespace=train"), ["JobSet"]),
    (("-x", "A=yes: no # $(B) \u00fc", "--k8s", "gpus=1,interface=net1,port=1234"), ["Service", "Job"]),
]
RANK_PROGRAM = ""
PROGRAM = ("train", "--lr", "0.1", "it's: \"x\"\n- y")


class Manifests(jobs.JobTest):
    def manifests(self, *arguments):
        job = self.run_job(*SETTINGS, *arguments)
        self.assertEqual(job.code, 0, job.stderr)
        return job.stdout

    def test_a_secret_of_a_made_up_name_is_named_beside_the_pipe(self):
        unnamed = ("-n", "2", "--launcher", "k8s", "--dry-run", "--k8s", "image=a", "train")
        job = self.run_job(*unnamed)
        name = re.search(r"secretName: \"?([-a-z0-9]+)", job.stdout)[1]
        self.assertRegex(job.stderr, f"kubectl create secret generic {name} ")
        for named in (("--job-id", "digits"), ("--k8s", "name=digits"), ("--k8s", "secret=mine")):
            self.assertEqual(self.run_job(*named, *unnamed).stderr, "")

    def problems(self, document):
        return k8s_fields.problems(document, k8s_fields.DOCUMENTS[document["kind"]], document["kind"])

    def test_fields(self):
        for arguments, kinds in CASES:
            with self.subTest(arguments=arguments):
                documents = k8s_fields.read_documents(self.manifests(*arguments, *PROGRAM))
                self.assertEqual([document["kind"] for document in documents], kinds)
                for document in documents:
                    self.assertEqual(self.problems(document), [])

    def test_names_lead_to_what_they_name(self):
        for arguments, kinds in CASES:
            with self.subTest(arguments=arguments):
                documents = k8s_fields.read_documents(self.manifests(*arguments, *PROGRAM))
                last = documents[-1]["spec"]
                jobs_of_it = last.get("replicatedJobs") or [{"name": "workers", "replicas": 1, "template": {"spec": last}}]
                for job in jobs_of_it:
                    spec = job["template"]["spec"]
                    self.assertEqual(spec["completions"], spec["parallelism"])
                    pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
                    container, = pod["containers"]
                    self.assertEqual(container["command"], list(PROGRAM))
                    self.assertEqual([mount["name"] for mount in container["volumeMounts"]],
                                     [volume["name"] for volume in pod["volumes"]])
                    variables = {entry["name"]: entry["value"] for entry in container["env"]}
                    host, port = variables["MX_RDZV"].rsplit(":", 1)
                    self.assertEqual(int(port), container["ports"][0]["containerPort"])
                    self.assertTrue(variables["MX_SECRET_FILE"].startswith(container["volumeMounts"][0]["mountPath"] + "/"))
                    if kinds == ["JobSet"]:
                        # The JobSet controller names the pods.
                        subdomain = last["network"]["subdomain"]
                        self.assertEqual(host, f"{documents[0]['metadata']['name']}-workers-0-0.{subdomain}")
                    else:
                        service = documents[0]
                        self.assertEqual(host, f"{documents[1]['metadata']['name']}-0.{pod['subdomain']}")
                        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
                        self.assertEqual(service["spec"]["ports"][0]["port"], int(port))
                        self.assertEqual({**labels, **service["spec"]["selector"]}, labels)  # the Service finds the pods
                if kinds == ["JobSet"]:
                    names = [job["name"] for job in jobs_of_it]
                    self.assertEqual([name for name in last["successPolicy"]["targetReplicatedJobs"] if name not in names], [])

    def test_the_table_finds_mistakes(self):
        job = k8s_fields.read_documents(self.manifests(*CASES[0][0], "train"))[1]

        def pod(document):
            return document["spec"]["template"]["spec"]

        def container(document):
            return pod(document)["containers"][0]
        mistakes = {
            "parallelism": lambda d: d["spec"].update(parallelism="4"),
            "completions": lambda d: d["spec"].pop("completions"),
            "paralelism": lambda d: d["spec"].update(paralelism=4),
            "restartPolicy": lambda d: pod(d).update(restartPolicy="Always"),
            "metadata.name": lambda d: d["metadata"].update(name="Upper"),
            "labels": lambda d: d["metadata"].update(labels={"a b": "c"}),
            "value": lambda d: container(d)["env"][0].update(value=4),
            "different names": lambda d: container(d)["env"].append(container(d)["env"][0]),
            "containerPort": lambda d: container(d)["ports"][0].update(containerPort=65536),
            "ports[0].name": lambda d: container(d)["ports"][0].update(name="more-than-fifteen"),
            "memory": lambda d: container(d)["resources"]["limits"].update(memory="4GB"),
            "containers": lambda d: pod(d).update(containers=[]),
            "readOnly": lambda d: container(d)["volumeMounts"][0].update(readOnly="true"),
            "apiVersion": lambda d: d.update(apiVersion="batch/v2"),
        }
        self.assertEqual(self.problems(job), [])
        for place, change in mistakes.items():
            wrong = copy.deepcopy(job)
            change(wrong)
            found = self.problems(wrong)
            self.assertEqual(len(found), 1, f"{place}: {found}")
            self.assertIn(place, found[0])

    @unittest.skipUnless(HAS_SCHEMAS, "no kubernetes-validate and kubeflow-trainer-api")
    def test_schemas(self):
        for arguments, kinds in CASES:
            with self.subTest(arguments=arguments):
                text = self.manifests(*arguments, *PROGRAM)
                done = subprocess.run([PYTHON, "-c", VALIDATE], input=text, capture_output=True, text=True, check=False)
                self.assertEqual(done.stdout.splitlines(), [f"valid {kind}" for kind in kinds], done.stderr + text)

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


def expanded(text, variables):
    """What a kubelet makes of an argument or a value: $(NAME) is replaced, and $$ stands for $."""
    return re.sub(r"\$(\$|\(([-\w.]+)\))",
                  lambda found: "$" if found[1] == "$" else variables.get(found[2], found[0]), text)


class Pods(jobs.JobTest):
    """The pods of a manifest, as a kubelet would start them: processes with the command and the variables of the container. The
    name of pod 0, the interface and the path of the secret are replaced by those of this machine."""

    def start_pods(self, *arguments):
        """Returns the processes of all pods of the workers."""
        job = self.run_job(*SETTINGS, *arguments)
        self.assertEqual(job.code, 0, job.stderr)
        spec = k8s_fields.read_documents(job.stdout)[-1]["spec"]
        container, = spec["template"]["spec"]["containers"]
        self.assertEqual(spec["completionMode"], "Indexed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        secret = self.write("secret", "0123456789abcdef" * 4 + "\n", 0o600)
        variables = {}
        for entry in container["env"]:
            variables[entry["name"]] = expanded(entry["value"], variables)
        self.assertTrue({"MX_RDZV", "MX_INTERFACE", "MX_SECRET_FILE", "MX_WORLD_SIZE"} <= set(variables))
        variables.update({"MX_RDZV": f"127.0.0.1:{port}", "MX_INTERFACE": "lo", "MX_SECRET_FILE": secret})
        pods = []
        for index in range(spec["completions"]):
            pods.append(subprocess.Popen(
                [expanded(word, variables) for word in container["command"] + container.get("args", [])], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, cwd=self.folder,
                env={"PATH": os.environ["PATH"], "TSAN_OPTIONS": "report_thread_leaks=0", **variables,
                     "JOB_COMPLETION_INDEX": str(index)}))
            self.addCleanup(pods[-1].wait)
            self.addCleanup(jobs.kill_if_there, [pods[-1].pid])
            self.addCleanup(pods[-1].stdout.close)
            self.addCleanup(pods[-1].stderr.close)
        return pods

    def run_pods(self, *arguments):
        """Returns the exit code and the output of each pod."""
        return [(pod.returncode, out) for pod, (out, _) in
                [(pod, pod.communicate(timeout=120)) for pod in self.start_pods(*arguments)]]

    def test_ranks_find_each_other(self):
        self.assertEqual(self.run_pods("-n", "4", RANK_PROGRAM, "sum"), [(0, "10\n")] * 4)

    def test_every_pod_gets_its_arguments_and_variables_unchanged(self):
        words = ["two words", "it's", "$HOME", "$(MX_RDZV)", "`id`", "a;b", "*", "new\nline", "yes", "1e3", "\u00fc"]
        program = self.write("show", "#!/bin/sh\nprintf '<%s>' \"$JOB_COMPLETION_INDEX\" \"$TRICKY\" \"$@\"\n")
        pods = self.run_pods("-n", "3", "-x", "TRICKY=a b'c\"e\"", program, *words)
        for index, (code, out) in enumerate(pods):
            self.assertEqual((code, out), (0, "".join(f"<{word}>" for word in [str(index), "a b'c\"e\"", *words])))

    def test_survivors_name_a_killed_pod(self):
        pods = self.start_pods("-n", "3", RANK_PROGRAM, "loop", self.folder)
        for rank in range(3):
            self.wait_for_lines(f"ready{rank}", 1)
        os.kill(pods[2].pid, signal.SIGKILL)
        for rank, pod in enumerate(pods):
            out, err = pod.communicate(timeout=120)
            self.assertEqual(pod.returncode, -signal.SIGKILL if rank == 2 else 1, err)
            if rank != 2:
                self.assertRegex(out, r"rank 2\b")


if __name__ == "__main__":
    RANK_PROGRAM = os.path.abspath(sys.argv.pop(2))
    jobs.main()
