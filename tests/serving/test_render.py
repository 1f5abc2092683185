"""Files for TensorFlow Serving say what they should, to those who read them."""

import csv
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow_serving.config import model_server_config_pb2

from jobi_tf.errors import DataError, UsageError
from jobi_tf.serving.client import ROWS
from jobi_tf.serving.config import read_models_config
from jobi_tf.serving.render import (
    IMAGE,
    KINDS,
    Batching,
    exported_versions,
    flags,
    models_config,
    render,
    stable_and_canary,
)
from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import running

# What tensorflow-serving-api leaves out of its package, from TensorFlow Serving's session_bundle_config.proto and
# monitoring_config.proto.
WRAPPERS = ".google.protobuf.Int64Value"
LEFT_OUT = {
    "BatchingParameters": {
        "max_batch_size": (1, WRAPPERS),
        "batch_timeout_micros": (2, WRAPPERS),
        "max_enqueued_batches": (3, WRAPPERS),
        "num_batch_threads": (4, WRAPPERS),
    },
    "PrometheusConfig": {"enable": (1, 8), "path": (2, 9)},
    "MonitoringConfig": {"prometheus_config": (1, ".left.out.PrometheusConfig")},
}
ODD = 'Łódź\'s "model" $HOME, 1'  # a name that quoting has to get right


def left_out(name: str):
    """A message that the package has not."""
    from google.protobuf import wrappers_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="left_out.proto", package="left.out", syntax="proto3", dependency=[wrappers_pb2.DESCRIPTOR.name]
    )
    for message, fields in LEFT_OUT.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            of_kind = {"type": kind} if isinstance(kind, int) else {"type": 11, "type_name": kind}
            described.field.add(name=field, number=number, label=1, **of_kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"left.out.{name}"))()


@pytest.fixture(params=["world", ODD])
def model(tmp_path, request) -> ServedModel:
    """Versions 1, 2 and 10, as far as files for them look at them."""
    folder = tmp_path / request.param
    for version in (1, 2, 10):
        (folder / str(version) / "variables").mkdir(parents=True)
        (folder / str(version) / "saved_model.pb").write_bytes(b"")
        (folder / str(version) / "variables" / "all").write_bytes(bytes(version * 2**20))
    (folder / "11.tmp").mkdir()
    (folder / "12").mkdir()  # not yet written
    return ServedModel(request.param, folder, labels=stable_and_canary([1, 2, 10]))


def config_of(text: str):
    (config,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
    return config


def test_models_config(model):
    assert model.labels == {"stable": 2, "canary": 10}
    for kind, path in (("tf-serving", str(model.folder.resolve())), ("compose", f"/models/{model.name}")):
        config = config_of(render(kind, model)["models.config"])
        assert (config.name, config.base_path, config.model_platform) == (model.name, path, "tensorflow")
        assert list(config.model_version_policy.specific.versions) == [2, 10]
        assert dict(config.version_labels) == model.labels


def test_stable_and_canary():
    assert stable_and_canary([4]) == {"stable": 4, "canary": 4}
    assert stable_and_canary([1, 2, 10]) == {"stable": 2, "canary": 10}


def test_policies():
    folder = Path("/models/x")
    latest = config_of(models_config([ServedModel("x", folder, latest=3)]))
    assert latest.model_version_policy.latest.num_versions == 3
    specific = config_of(models_config([ServedModel("x", folder, None, (2, 5))]))
    assert list(specific.model_version_policy.specific.versions) == [2, 5]


def test_labels_keep_the_newest_too(model):
    pinned = ServedModel(model.name, model.folder, labels={"old": 1})
    config = config_of(render("tf-serving", pinned)["models.config"])
    assert list(config.model_version_policy.specific.versions) == [1, 10]


def test_what_was_rendered_is_read_back(model, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(render("tf-serving", model)["models.config"])
    assert read_models_config(file) == (ServedModel(model.name, model.folder.resolve(), None, (2, 10), model.labels),)


def test_batching_and_monitoring(model):
    files = render("tf-serving", model, Batching(2048, 0.0025))
    batching = text_format.Parse(files["batching.conf"], left_out("BatchingParameters"))
    assert (batching.max_batch_size.value, batching.batch_timeout_micros.value) == (2048, 2500)
    assert batching.num_batch_threads.value >= 1
    monitoring = text_format.Parse(files["prometheus.config"], left_out("MonitoringConfig")).prometheus_config
    scraped = yaml.safe_load(files["prometheus.yml"])["scrape_configs"][0]
    assert monitoring.enable
    assert monitoring.path == scraped["metrics_path"]
    assert scraped["static_configs"] == [{"targets": ["127.0.0.1:8501"]}]


def test_the_client_never_sends_more_than_a_batch():
    assert Batching().max_rows >= ROWS
    with pytest.raises(UsageError, match=f"expected at least {ROWS} rows at a time"):
        Batching(256)


@pytest.mark.parametrize("batched", [None, Batching()])
def test_flags_name_files_that_are_there(model, batched):
    files = render("compose", model, batched, timeout=2.5)
    command = yaml.safe_load(files["compose.yaml"])["services"]["serving"]["command"]
    named = dict(flag.removeprefix("--").split("=", 1) for flag in command)
    assert {value.removeprefix("/config/") for value in named.values() if value.startswith("/config/")} <= set(files)
    assert named["rest_api_timeout_in_ms"] == "2500"
    assert named["allow_version_labels_for_unavailable_models"] == "true"
    assert ("enable_batching" in named) == ("batching_parameters_file" in named) == (batched is not None)
    head, *_ = render("tf-serving", model, batched)["models.config"].splitlines()
    program, grpc, rest, *others = shlex.split(head.removeprefix("# "))
    assert (program, grpc, rest) == ("tensorflow_model_server", "--port=8500", "--rest_api_port=8501")
    assert others == flags("models.config", "", batched is not None, 30)


def test_compose(model):
    compose = yaml.safe_load(render("compose", model, grpc_port=18500, rest_port=18501)["compose.yaml"])
    serving = compose["services"]["serving"]
    models, config = serving["volumes"]
    assert serving["image"] == IMAGE
    assert serving["ports"] == ["127.0.0.1:18500:8500", "127.0.0.1:18501:8501"]
    # compose puts variables in for $NAME, and $ for $$
    assert models["source"].replace("$$", "$") == str(model.folder.resolve())
    assert models["target"].replace("$$", "$") == f"/models/{model.name}"
    assert all("$" not in path.replace("$$", "") for path in models.values() if isinstance(path, str))
    assert (models["read_only"], config["source"], config["target"]) == (True, ".", "/config")
    assert compose["services"]["prometheus"]["profiles"] == ["monitoring"]
    assert compose["name"] == compose["name"].lower().strip("-")


def test_the_health_check_of_compose_tells_the_truth(tiny):
    model = ServedModel("tiny", tiny[1], labels={"stable": 1})
    compose = yaml.safe_load(render("compose", model)["compose.yaml"])
    program, *command = compose["services"]["serving"]["healthcheck"]["test"]
    assert program == "CMD"

    def healthy(port: int) -> bool:
        return (
            subprocess.run([part.replace("8501", str(port)) for part in command], capture_output=True).returncode == 0
        )

    with running(ServedModel("tiny", tiny[1])) as server:
        assert healthy(server.port)
    assert not healthy(server.port)
    with running(ServedModel("other", tiny[1])) as server:
        assert not healthy(server.port)


def test_docker_is_one_line_that_a_shell_takes_apart(model):
    script = render("tf-serving", model)["docker.sh"]
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    (line,) = (line for line in script.splitlines() if not line.startswith("#"))
    words = shlex.split(line)
    assert words[:3] == ["docker", "run", "--rm"]
    assert words[-3:] == ["-e", f"MODEL_NAME={model.name}", IMAGE]
    (mount,) = csv.reader([words[words.index("--mount") + 1]])
    assert mount == ["type=bind", f"source={model.folder.resolve()}", f"target=/models/{model.name}", "readonly"]


def test_kubernetes(model):
    files = render("k8s", model)
    assert list(files) == ["kubernetes.yaml"]
    claim, config, deployment, service = yaml.safe_load_all(files["kubernetes.yaml"])
    assert [x["kind"] for x in (claim, config, deployment, service)] == [
        "PersistentVolumeClaim",
        "ConfigMap",
        "Deployment",
        "Service",
    ]
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert volumes["config"]["configMap"]["name"] == config["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert paths["models"] == f"/models/{model.name}"
    named = [flag.split("=/config/")[1] for flag in container["args"] if "=/config/" in flag]
    assert set(named) <= set(config["data"])
    assert config_of(config["data"]["models.config"]).base_path == paths["models"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == "rest"
        assert container[probe]["httpGet"]["path"].startswith("/v1/models/")
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    # versions 2 and 10 are of 2 and 10 MiB
    assert container["resources"]["limits"]["memory"] == f"{512 + 2 * 12}Mi"
    assert claim["spec"]["resources"]["requests"]["storage"] == f"{64 + 4 * 12}Mi"
    assert pod["metadata"]["annotations"]["prometheus.io/path"] == "/monitoring/prometheus/metrics"


def test_probes_ask_what_the_server_answers(tiny):
    model = ServedModel("tiny", tiny[1], labels={"stable": 1})
    (container,) = list(yaml.safe_load_all(render("k8s", model)["kubernetes.yaml"]))[2]["spec"]["template"]["spec"][
        "containers"
    ]
    with running(ServedModel("tiny", tiny[1])) as server:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            status, _ = server.ask(container[probe]["httpGet"]["path"])
            assert status == 200


def test_folders_that_hold_no_export(tmp_path):
    with pytest.raises(DataError, match=r"no such folder; `jobi-tf export RUN DIR` makes one"):
        exported_versions(tmp_path / "none")
    with pytest.raises(DataError, match=r"\(1, 2, …\) in .*: found none; `jobi-tf export"):
        exported_versions(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(DataError, match=f"got one version: give its parent, {tmp_path.parent}"):
        exported_versions(tmp_path)


def test_refuses(model):
    with pytest.raises(DataError, match=r"expected version 3 in .*, found 1, 2, 10"):
        render("compose", ServedModel("x", model.folder, labels={"stable": 3}))
    with pytest.raises(UsageError, match="expected tf-serving or compose or k8s, got 'helm'"):
        render("helm", model)
    assert len(KINDS) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model_config_list { config { nam: 'x' } }", "1:30 : .*ModelConfig.* has no field named"),
        ("", "expected a model_config_list with a config for each model in .*, found none"),
        ("config { name: 'x' base_path: 'x' }", "expected the whole path of a folder as base_path of 'x', got 'x'"),
        ("config { base_path: '/x' }", "expected a model's name without / and :, got ''"),
        ("config { name: 'x' base_path: '/x' } config { name: 'x' base_path: '/y' }", "model 'x' is there twice"),
        (
            "config { name: 'x' base_path: '/x' model_platform: 'caffe' }",
            "model_platform 'tensorflow' for 'x', got 'caffe'",
        ),
        (
            "config { name: 'x' base_path: '/x' model_version_policy { specific {} } }",
            "versions in the policy 'specific'",
        ),
        (
            "config { name: 'x' base_path: '/x' model_version_policy { specific { versions: 1 } }"
            " version_labels { key: 'a' value: 2 } }",
            "a label of 'x' is for version 2, which is not among",
        ),
    ],
)
def test_bad_models_config(tmp_path, text, words):
    file = tmp_path / "models.config"
    file.write_text(f"model_config_list {{ {text} }}" if text.startswith("config") else text)
    with pytest.raises(DataError, match=words) as error:
        read_models_config(file)
    assert str(file) in str(error.value)


def test_models_config_of_others(tmp_path):
    file = tmp_path / "models.config"
    file.write_text(
        "# several\nmodel_config_list: {\n"
        "  config: { name: 'a', base_path: '/a', model_platform: 'tensorflow' },\n"
        "  config: { name: 'b', base_path: '/b', model_version_policy: { all: {} } },\n"
        "  config: { name: 'c', base_path: '/c', model_version_policy: { latest: { num_versions: 2 } } }\n}"
    )
    a, b, c = read_models_config(file)
    assert (a, c) == (ServedModel("a", Path("/a")), ServedModel("c", Path("/c"), latest=2))
    assert b.latest is not None
    assert b.latest > 10**6
    with pytest.raises(DataError, match=f"expected a file of models at {tmp_path}/none: No such file"):
        read_models_config(tmp_path / "none")
