"""Configuration files: what upstream's format says, and one sentence where it says nothing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.serving.lifecycle.model_config import (
    ConfigError,
    ModelSettings,
    model_settings,
    read_models,
)
from deploykit.serving.lifecycle.version_folders import All, Latest, Specific
from deploykit.serving.protocol.errors import MESSAGE_LENGTH, ServingError
from deploykit.serving.protocol.protos import Batching, ModelServerConfig, read_batching
from deploykit.serving.server.config_files import (
    METRICS_PATH,
    Monitoring,
    Tls,
    read_monitoring,
    read_tls,
)
from deploykit.transforms.common.errors import FileError
from deploykit.transforms.ir.protos import private_messages
from tests.support import Containing, assert_golden, because, coded, raises, refusal, shows

PEM = "-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n"
KEY = "-----BEGIN PRIVATE KEY-----\\nMIIEsecret\\n-----END PRIVATE KEY-----\\n"


@pytest.fixture
def read(tmp_path):
    def parse(reader, text):
        path = tmp_path / "some.config"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return reader(path)

    return parse


def listed(*models):
    return "model_config_list {" + "".join(f"config {{ {each} }}" for each in models) + "}"


MODEL = 'name: "m" base_path: "/models/m" model_platform: "tensorflow"'


def test_models(read):
    text = """
    model_config_list {  # a comment
      config {
        name: "half"
        base_path: "/models/half"
        model_platform: "tensorflow"
      }
      config {
        name: "all" base_path: "/models/all" model_type: TENSORFLOW
        model_version_policy { all {} }
      }
      config {
        name: "two" base_path: "/models/two" model_platform: "tensorflow"
        model_version_policy { latest { num_versions: 2 } }
      }
      config {
        name: "some" base_path: "/models/some" model_platform: "tensorflow"
        model_version_policy { specific { versions: 42 versions: 43 } }
        version_labels { key: "stable" value: 42 }
        version_labels { key: "canary" value: 43 }
      }
    }
    """
    assert read(read_models, text) == (
        ModelSettings("half", Path("/models/half"), Latest(1)),
        ModelSettings("all", Path("/models/all"), All()),
        ModelSettings("two", Path("/models/two"), Latest(2)),
        ModelSettings(
            "some", Path("/models/some"), Specific((42, 43)), {"stable": 42, "canary": 43}
        ),
    )


def test_no_models_are_a_list_too(read):
    assert read(read_models, "model_config_list {}") == ()


def test_a_zero_number_of_versions_is_one(read):
    text = listed(MODEL + " model_version_policy { latest {} }")
    assert read(read_models, text)[0].policy == Latest(1)


def test_a_logging_config_is_said_to_be_without_effect(read, caplog):
    read(read_models, listed(MODEL + " logging_config {}"))
    assert caplog.messages == [because("logging-ignored", model="m")]


M = 'name: "m"'
LISTS = [
    listed(MODEL, MODEL), listed(f'{M} base_path: "/m"'), listed(MODEL + " model_type: TENSORFLOW"),
    listed(f'{M} base_path: "/m" model_type: OTHER'),
    listed(f'{M} base_path: "models/m" model_platform: "tensorflow"'),
    listed(f'{M} model_platform: "tensorflow"'),
    listed(f'{M} base_path: "gs://bucket/m" model_platform: "tensorflow"'),
    listed('base_path: "/m" model_platform: "tensorflow"'),
    listed(MODEL.replace('"m"', f'"{"m" * 257}"')),
    listed(MODEL + f' version_labels {{ key: "{"m" * 257}" value: 1 }}'),
    listed(MODEL.replace("/models/m", f"/{'m' * 4096}")),
    listed(*[f'name: "{number}{"m" * 240}"' for number in range(20_000)]),
    "custom_model_config {}",
]  # fmt: skip


@pytest.mark.golden("refusals/model_config")
def test_lists_that_are_refused(read):
    from google.protobuf import text_format

    said = []
    for text in LISTS:
        with pytest.raises(ServingError) as refused:
            model_settings(text_format.Parse(text, ModelServerConfig()))
        assert refused.value.status == "INVALID_ARGUMENT"
        with pytest.raises(ConfigError) as caught:
            read(read_models, text)
        assert str(caught.value).endswith(f"some.config: {refused.value.message}")
        assert caught.value.exit_status == 2
        said.append(f"{text[:200]}\n{coded(refused.value)}")
    assert_golden(*said)


def test_an_empty_reload_is_refused():
    with raises(ServingError, "reload-config-type"):
        model_settings(ModelServerConfig())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", None),
        ("# nothing but a comment\n", None),
        (
            "model_config_lst {}",
            '1:1: Message type "tensorflow.serving.ModelServerConfig" has no field named '
            '"model_config_lst". (did you mean model_config_list or custom_model_config?)',
        ),
        (
            'model_config_list {\n config { nme: "m" } }',
            '2:11: Message type "tensorflow.serving.ModelConfig" has no field named "nme". '
            "(did you mean name?)",
        ),
        ("model_config_list {\n config { name: 1 } }", "2:17: Expected string but found: '1'"),
        ("{", "1:1: Expected identifier or number, got {."),
        ('model_config_list { config { name: "m"', '1:36: Expected "}".'),
        (b"\xff\xfe", Containing("UTF-8")),
    ],
)
def test_files_that_are_no_list(read, text, reason):
    with pytest.raises(ConfigError) as caught:
        read(read_models, text)
    path, _, said = str(caught.value).partition(": ")
    assert path.endswith("some.config")
    assert "\n" not in said
    if reason is None:
        assert shows(said, "model-config-without-models")
    else:
        assert shows(
            said,
            "config-not-parsed",
            package="tensorflow.serving",
            name="ModelServerConfig",
            reason=reason,
        )


@pytest.mark.parametrize("reader", [read_models, read_batching, read_monitoring, read_tls])
def test_files_that_cannot_be_read(tmp_path, reader):
    with raises(FileError, "file-error", reason=Containing("file or directory")):
        reader(tmp_path / "gone")
    with raises(FileError, "file-kind", got="a folder"):
        reader(tmp_path)


FIELDS = [
    name
    for message in private_messages(
        "tensorflow.serving", ["BatchingParameters", "SSLConfig"]
    ).values()
    for name in message.DESCRIPTOR.fields_by_name
]
WORDS = st.sampled_from(
    ["{", "}", ":", "[", "]", "<", ">", '"a"', "'", '"', "1", "-", "9" * 30, "true", "all", "\n",
     "model_config_list", "config", "name", "base_path", "version_labels", "key", "value",
     "model_version_policy", "specific", "versions", "custom_model_config", "[a.b/C]", "nan",
     *FIELDS, "prometheus_config", "\\", "\x00"]
)  # fmt: skip


@pytest.mark.sampled
@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40))
def test_whatever_the_file_holds_there_is_one_sentence(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzzed.config"
    path.write_bytes(text.encode(errors="surrogatepass"))
    for reader in (read_models, read_batching, read_monitoring, read_tls):
        message = said(reader, path)
        assert "\n" not in message
        assert len(message) < MESSAGE_LENGTH
        assert "deploykit.serving" not in message


def said(reader, path):
    try:
        return str(reader(path))[:0]
    except ConfigError as error:
        return str(error)


def test_batching(read):
    text = """
    max_batch_size { value: 32 }
    batch_timeout_micros { value: 1000 }
    max_enqueued_batches { value: 7 }
    num_batch_threads { value: 4 }
    thread_pool_name { value: "pool" }
    allowed_batch_sizes: 1 allowed_batch_sizes: 8 allowed_batch_sizes: 16
    pad_variable_length_inputs: true
    enable_large_batch_splitting { value: true }
    max_execution_batch_size { value: 16 }
    """
    batching = read(read_batching, text)
    assert batching == Batching(32, 1000, 7, 4, (1, 8, 16), True, True, 16, "pool")
    assert batching.largest == 16


def test_batching_without_a_word_is_upstreams_default(read):
    assert read(read_batching, "") == Batching(1000, 0, 10, None, (), False, False, None)
    assert Batching().largest == 1000


def number(name, value, more=""):
    return f"{name} {{ value: {value} }} {more}"


BATCHING = [
    number("max_batch_size", 0), "max_batch_size {}", number("num_batch_threads", -1),
    number("max_enqueued_batches", 0), number("num_batch_threads", 5000),
    number("batch_timeout_micros", -5), number("max_batch_size", 8, "allowed_batch_sizes: [1, 4]"),
    number("max_batch_size", 4, "allowed_batch_sizes: [2, 2, 4]"),
    number("max_batch_size", 4, "allowed_batch_sizes: [0, 4]"),
    number("max_batch_size", 4, "enable_large_batch_splitting { value: true } "
           "max_execution_batch_size { value: 8 }"),
    "max_batch_size: 4", number("max_batchsize", 4),
]  # fmt: skip


@pytest.mark.golden("refusals/batching")
def test_batching_that_cannot_be(read, tmp_path):
    said = (f"{text}\n{refusal(read, read_batching, text)}" for text in BATCHING)
    assert_golden(*(each.replace(f"{tmp_path}/", "") for each in said))


def test_monitoring(read):
    text = 'prometheus_config { enable: true path: "/metrics" }'
    assert read(read_monitoring, text) == Monitoring(True, "/metrics")
    assert read(read_monitoring, "prometheus_config: { enable: true }").path == METRICS_PATH
    assert read(read_monitoring, "") == Monitoring(False, METRICS_PATH)
    with raises(ConfigError, "unexpected", got="metrics"):
        read(read_monitoring, 'prometheus_config { path: "metrics" }')


def test_tls(read):
    text = f'server_key: "{KEY}"\nserver_cert: "{PEM}"\ncustom_ca: "{PEM}"\nclient_verify: true'
    pem = PEM.replace("\\n", "\n")
    tls = read(read_tls, text)
    assert tls == Tls(KEY.replace("\\n", "\n"), pem, pem, True)
    assert "secret" not in repr(tls)


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("", "pem-missing", {"name": "server_key"}),
        (f'server_key: "{KEY}"', "pem-missing", {"name": "server_cert"}),
        (
            f'server_key: "/etc/key.pem" server_cert: "{PEM}"',
            "not-pem-text",
            {"name": "server_key"},
        ),
        (
            f'server_key: "{KEY}" server_cert: "{PEM}" client_verify: true',
            "option-needs",
            {"option": "client_verify", "needed": Containing("custom_ca")},
        ),
    ],
)
def test_tls_that_cannot_be(read, text, code, fields):
    with raises(ConfigError, code, source=Containing("some.config"), **fields):
        read(read_tls, text)


@pytest.mark.parametrize(
    "text",
    [
        'server_key: "MIIEsecret',
        "server_key: MIIEsecret",
        "MIIEsecret: 1",
        'server_key: "MIIEsecret" server_key: "MIIEsecret"',
        'server_cert: 1 # "MIIEsecret"',
    ],
)
def test_no_piece_of_a_key_is_shown(read, text):
    with pytest.raises(ConfigError) as caught:
        read(read_tls, text)
    assert "secret" not in str(caught.value)
    assert "server_key, server_cert, custom_ca, client_verify" in str(caught.value)
