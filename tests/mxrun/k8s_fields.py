"""The fields of Kubernetes and JobSet that mxrun's manifests use: their types, and which are required.

Written from the references of the interfaces, and compared with what kubernetes-validate and the models of
kubeflow-trainer-api accept (launchers_k8s_test.py):
  Kubernetes 1.31, https://kubernetes.io/docs/reference/kubernetes-api/: Service v1, Job batch/v1, Pod v1
  JobSet v1alpha2, https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
A field that is not in the table is an error, as with a strict validation. So a manifest that gets a new field needs a
new line here.
"""

import json
import re


def text(pattern, longest=1 << 20):
    """Strings that match as a whole."""
    def check(value):
        return isinstance(value, str) and len(value) <= longest and re.fullmatch(pattern, value, re.DOTALL) is not None
    check.expected = f"a string of at most {longest} characters that matches {pattern}"
    return check


def number(least, most):
    def check(value):
        return type(value) is int and least <= value <= most
    check.expected = f"a number from {least} to {most}"
    return check


def one_of(*values):
    def check(value):
        return any(type(value) is type(each) and value == each for each in values)
    check.expected = " or ".join(map(repr, values))
    return check


class ListOf:
    """At least one item; if `name` is set, items have different values of that field."""
    def __init__(self, item, name=None):
        self.item, self.name = item, name


class MapOf:
    def __init__(self, key, value):
        self.key, self.value = key, value


LABEL = text("[a-z0-9]([-a-z0-9]*[a-z0-9])?", 63)  # RFC 1123
SUBDOMAIN = text(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", 253)
SERVICE_NAME = text("[a-z]([-a-z0-9]*[a-z0-9])?", 63)  # RFC 1035
PORT_NAME = text("[a-z0-9]([-a-z0-9]*[a-z0-9])?", 15)  # RFC 6335
QUALIFIED = text(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", 317)
LABEL_VALUE = text("([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", 63)
QUANTITY = text("([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
COUNT = number(0, 2**31 - 1)
BOOL = one_of(True, False)
PORT = number(1, 65535)
LABELS = MapOf(QUALIFIED, LABEL_VALUE)
RESOURCES = MapOf(QUALIFIED, QUANTITY)

# Fields end with "!" if Kubernetes, or the purpose of mxrun, requires them.
METADATA = {"name!": LABEL, "namespace": LABEL, "labels!": LABELS}
CONTAINER = {
    "name!": LABEL,
    "image!": text(r"\S+"),
    "command!": ListOf(text(".*")),
    "env!": ListOf({"name!": text("[-._a-zA-Z][-._a-zA-Z0-9]*"), "value!": text(".*")}, "name"),
    "ports!": ListOf({"name!": PORT_NAME, "containerPort!": PORT, "protocol!": one_of("TCP")}, "name"),
    "resources!": {"requests!": RESOURCES, "limits!": RESOURCES},
    "securityContext!": {"allowPrivilegeEscalation!": one_of(False), "capabilities!": {"drop!": ListOf(one_of("ALL"))}},
    "volumeMounts!": ListOf({"name!": LABEL, "mountPath!": text("/[^:]*"), "readOnly!": one_of(True)}, "name"),
}
POD = {
    "restartPolicy!": one_of("Never"),
    "subdomain": LABEL,
    "terminationGracePeriodSeconds!": number(1, 2**31 - 1),
    "automountServiceAccountToken!": one_of(False),
    "containers!": ListOf(CONTAINER, "name"),
    "volumes!": ListOf({"name!": LABEL, "secret!": {"secretName!": SUBDOMAIN, "defaultMode!": number(0, 0o777)}}, "name"),
}
JOB_SPEC = {
    "completionMode!": one_of("Indexed"),
    "completions!": COUNT,
    "parallelism!": COUNT,
    "backoffLimit!": one_of(0),
    "template!": {"metadata!": {"labels!": LABELS}, "spec!": POD},
}
DOCUMENTS = {
    "Service": {
        "apiVersion!": one_of("v1"), "kind!": one_of("Service"), "metadata!": {**METADATA, "name!": SERVICE_NAME},
        "spec!": {"clusterIP!": one_of("None"), "publishNotReadyAddresses!": one_of(True), "selector!": LABELS,
                  "ports!": ListOf({"name!": PORT_NAME, "port!": PORT, "protocol!": one_of("TCP")}, "name")}},
    "Job": {"apiVersion!": one_of("batch/v1"), "kind!": one_of("Job"), "metadata!": METADATA, "spec!": JOB_SPEC},
    "JobSet": {
        "apiVersion!": one_of("jobset.x-k8s.io/v1alpha2"), "kind!": one_of("JobSet"), "metadata!": METADATA,
        "spec!": {
            "network!": {"enableDNSHostnames!": one_of(True), "subdomain!": LABEL, "publishNotReadyAddresses!": BOOL},
            "successPolicy!": {"operator!": one_of("All", "Any"), "targetReplicatedJobs!": ListOf(LABEL)},
            "failurePolicy!": {"maxRestarts!": COUNT},
            "replicatedJobs!": ListOf({"name!": LABEL, "replicas!": COUNT, "template!": {"spec!": JOB_SPEC}}, "name")}},
}


def problems(value, expected, place):
    """Returns a line for each place of a value that is not as the table says."""
    if isinstance(expected, dict):
        if not isinstance(value, dict):
            return [f"{place}: expected fields, got {value!r}"]
        known = {name.rstrip("!"): kind for name, kind in expected.items()}
        found = [f"{place}: expected {name[:-1]}, got none" for name in expected if name.endswith("!") and name[:-1] not in value]
        for name, item in value.items():
            found += problems(item, known[name], f"{place}.{name}") if name in known else [f"{place}.{name}: not in the table"]
        return found
    if isinstance(expected, ListOf):
        if not isinstance(value, list) or not value:
            return [f"{place}: expected a list with items, got {value!r}"]
        found = [line for i, item in enumerate(value) for line in problems(item, expected.item, f"{place}[{i}]")]
        names = [item.get(expected.name) for item in value] if expected.name and not found else []
        return found + ([f"{place}: expected different names, got {names}"] if len(set(names)) < len(names) else [])
    if isinstance(expected, MapOf):
        if not isinstance(value, dict) or not value:
            return [f"{place}: expected a map with entries, got {value!r}"]
        return [line for key, item in value.items()
                for line in problems(key, expected.key, f"{place}, key {key}") + problems(item, expected.value, f"{place}.{key}")]
    return [] if expected(value) else [f"{place}: expected {expected.expected}, got {value!r}"]


def read_documents(manifest):
    """Reads what mxrun prints: maps and lists in blocks, and scalars as words or in JSON. Other YAML is a ValueError."""
    documents, lines = [], []
    for line in manifest.splitlines() + ["---"]:
        if line == "---":
            if lines:
                document, rest = read_block(lines)
                if rest:
                    raise ValueError(f"expected the end of the document, got {rest[0]}")
                documents.append(document)
            lines = []
        elif line and not line.startswith("#"):
            lines.append((len(line) - len(line.lstrip(" ")), line.lstrip(" ")))
    return documents


def read_scalar(word):
    if re.fullmatch("[A-Za-z][-A-Za-z0-9._/]*", word) and word not in ("true", "false", "null"):
        return word
    return json.loads(word)


def read_block(lines):
    """Returns the map or list at the start of the lines, which are pairs of indent and text, and the rest."""
    indent, is_list = lines[0][0], lines[0][1].startswith("- ")
    block = [] if is_list else {}
    while lines and lines[0][0] == indent and lines[0][1].startswith("- ") == is_list:
        line = lines[0][1]
        if is_list:
            inner = line[2:]
            if re.match(r"[A-Za-z0-9._/-]+:( |$)", inner):
                item, lines = read_block([(indent + 2, inner), *lines[1:]])
            else:
                item, lines = read_scalar(inner), lines[1:]
            block.append(item)
            continue
        name, separator, value = line.partition(":")
        if not separator or name in block:
            raise ValueError(f"expected a new field, got {line}")
        if value:
            block[name], lines = read_scalar(value.strip()), lines[1:]
        elif len(lines) > 1 and lines[1][0] > indent:
            block[name], lines = read_block(lines[1:])
        else:
            raise ValueError(f"expected a value of {name}, got none")
    if lines and lines[0][0] > indent:
        raise ValueError(f"expected an indent of {indent}, got {lines[0]}")
    return block, lines
