"""The Kubernetes part of docs/deployment.md: what it shows is explained, and its parts fit one another."""

import pytest

from tests.support.kube_documents import PAGE, confs_of, explained_in, manifests_of, variables_of

SESSIONS = ["## This machine", "## Standalone", "## YARN", "### Session", "## Dynamic allocation"]


@pytest.mark.parametrize("heading", SESSIONS)
def test_each_setting_of_a_session_is_explained(heading):
    given = {*confs_of(heading), *variables_of(heading)}
    explained = explained_in(heading)
    prefixes = tuple(name.rstrip("…") for name in explained if name.endswith("…"))
    # The master and the image are explained where they are first used.
    known = explained | explained_in("### Session") if heading == "## Dynamic allocation" else explained
    missing = {name for name in given - known if not name.startswith(prefixes or ("?",))}
    assert missing <= ({"spark.master"} if heading in ("## Standalone", "## YARN") else set())


def test_the_service_leads_to_the_host_that_the_session_names():
    (service,) = manifests_of("### Service for the driver")
    name = ".".join(service["metadata"][field] for field in ("name", "namespace"))
    confs = confs_of("### Session")
    assert confs["spark.driver.host"] == f"{name}.svc.cluster.local"
    assert confs["spark.kubernetes.namespace"] == service["metadata"]["namespace"]
    assert service["spec"]["clusterIP"] == "None"


def test_the_network_policy_lets_executors_reach_the_ports_that_the_session_names():
    driver, executors = manifests_of("### Network policies")
    (service,) = manifests_of("### Service for the driver")
    (template,) = manifests_of("### Pod template")
    assert driver["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]
    labels = template["metadata"]["labels"]
    sources = [rule["from"] for policy in (driver, executors) for rule in policy["spec"]["ingress"]]
    assert sources == [[{"podSelector": {"matchLabels": labels}}]] * 2
    allowed = driver["spec"]["ingress"][0]["ports"]
    confs, variables = confs_of("### Session"), variables_of("### Session")
    first, last = map(int, variables["TFOS_SERVER_PORT"].split("-"))
    assert allowed == [
        {"port": int(confs["spark.driver.port"])},
        {"port": int(confs["spark.driver.blockManager.port"])},
        {"port": first, "endPort": last},
    ]


def test_the_image_has_the_python_and_the_spark_that_the_session_names():
    import pyspark

    text = PAGE.read_text("utf-8")
    python = variables_of("### Session")["PYSPARK_PYTHON"]
    assert f"python3 -m venv {python.removesuffix('/bin/python')}\n" in text
    assert f"pyspark=={pyspark.__version__} " in text
    image = confs_of("### Session")["spark.kubernetes.container.image"]
    assert image.endswith(f":{pyspark.__version__.rpartition('.')[0]}")
