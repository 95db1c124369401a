"""Spark's ways of encrypting: their properties, without keytool and openssl, whose commands are seen."""

from __future__ import annotations

import subprocess
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkdl_bench.bench import encryption
from sparkdl_bench.errors import ConfigurationError, RunFailedError

PEM = "Bag Attributes\n-----BEGIN PRIVATE KEY-----\nkey\n-----END PRIVATE KEY-----\n"


class Tools:
    """keytool and openssl that write their file; what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], str]] = []
        self.modes: list[int] = []
        self.returncode = 0
        self.said = ("", "")

    def run(self, command: Sequence[str], *, env: Mapping[str, str], timeout: float, **options: Any) -> Any:
        assert options == {"capture_output": True, "text": True, "check": False}
        assert timeout == 60.0
        assert env["PATH"], "of this process's own environment"
        self.asked.append((list(command), env["SPARKDL_STORE_PASSWORD"]))
        out = Path(command[command.index("-keystore" if "-genkeypair" in command else "-out") + 1])
        if out.exists():
            self.modes.append(out.stat().st_mode & 0o777)
        out.write_text(PEM)
        stdout, stderr = self.said
        return types.SimpleNamespace(returncode=self.returncode, stdout=stdout, stderr=stderr)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    made = Tools()
    monkeypatch.setattr(encryption.subprocess, "run", made.run)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(encryption.shutil, "which", lambda name: f"/usr/bin/{name}")
    return made


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'rot13' is not known; valid: off, crypto, crypto-gcm, sasl, tls, "):
        encryption.missing("rot13", "4.1.4")


@pytest.mark.parametrize("name", encryption.CHOICES)
def test_what_is_missing_is_told_by_spark_s_version_and_the_programs(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert encryption.missing(name, "4.1.4") is None
    is_new = name in ("crypto-gcm", "tls", "tls-openssl")
    assert (encryption.missing(name, "3.5.9") is not None) == is_new
    # A Spark 3 of a number that does not begin so is none.
    assert encryption.missing(name, "13.5") is None
    monkeypatch.setattr(encryption.shutil, "which", lambda program: None if program == "openssl" else "/keytool")
    assert ("program openssl" in str(encryption.missing(name, "4.1.4"))) == (name == "tls-openssl")
    monkeypatch.setattr(encryption.shutil, "which", lambda _: None)
    assert ("set JAVA_HOME" in str(encryption.missing(name, "4.1.4"))) == name.startswith("tls")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("off", {}),
        ("crypto", {"spark.network.crypto.enabled": "true", "spark.network.crypto.saslFallback": "false"}),
        (
            "crypto-gcm",
            {
                "spark.network.crypto.enabled": "true",
                "spark.network.crypto.saslFallback": "false",
                "spark.network.crypto.cipher": "AES/GCM/NoPadding",
            },
        ),
        ("sasl", {"spark.authenticate.enableSaslEncryption": "true"}),
    ],
)
def test_what_needs_no_key_store_is_a_few_properties(
    tools: Tools, tmp_path: Path, name: str, own: dict[str, str]
) -> None:
    found, again = encryption.properties(name, tmp_path), encryption.properties(name, tmp_path)
    secret = found.pop("spark.authenticate.secret", None)
    assert found == ({"spark.authenticate": "true", **own} if own else {})
    assert tools.asked == []
    if own:
        assert len(str(secret)) == 64
        assert again["spark.authenticate.secret"] != secret
    else:
        assert secret is None


def test_tls_has_a_store_that_no_other_user_reads(tools: Tools, tmp_path: Path) -> None:
    found = encryption.properties("tls", tmp_path)
    ((command, password),) = tools.asked
    store = tmp_path / "keys.p12"
    assert command[:2] == ["/usr/bin/keytool", "-genkeypair"]
    assert command[command.index("-ext") + 1] == "san=ip:127.0.0.1"
    assert command[command.index("-keystore") + 1] == str(store)
    assert store.stat().st_mode & 0o777 == 0o600
    assert len(password) == 32
    # Other users see command lines.
    assert password not in command
    assert len(found.pop("spark.authenticate.secret")) == 64
    assert found == {
        "spark.authenticate": "true",
        "spark.ssl.rpc.enabled": "true",
        "spark.ssl.rpc.protocol": "TLSv1.3",
        "spark.ssl.rpc.keyStore": str(store),
        "spark.ssl.rpc.keyStoreType": "PKCS12",
        "spark.ssl.rpc.keyStorePassword": password,
        "spark.ssl.rpc.trustStore": str(store),
        "spark.ssl.rpc.trustStoreType": "PKCS12",
        "spark.ssl.rpc.trustStorePassword": password,
        "spark.ssl.rpc.keyPassword": password,
    }


def test_boringssl_reads_key_and_certificate_of_the_same_store(tools: Tools, tmp_path: Path) -> None:
    found = encryption.properties("tls-openssl", tmp_path)
    (made, password), (key, _), (certificate, _) = tools.asked
    store = tmp_path / "openssl.p12"
    assert made[made.index("-keystore") + 1] == found["spark.ssl.rpc.keyStore"] == str(store)
    assert {each for _, each in tools.asked} == {found["spark.ssl.rpc.keyPassword"]} == {password}
    for command, what, file in ((key, "-nocerts", "key.pem"), (certificate, "-nokeys", "certificate.pem")):
        assert command == [
            *("openssl", "pkcs12", "-in", str(store), "-passin", "env:SPARKDL_STORE_PASSWORD"),
            *(what, "-nodes", "-out", str(tmp_path / file)),
        ]
    # They are the user's alone before anything is written to them.
    assert tools.modes == [0o600, 0o600]
    assert found["spark.ssl.rpc.openSslEnabled"] == "true"
    assert found["spark.ssl.rpc.privateKey"] == str(tmp_path / "key.pem")
    assert found["spark.ssl.rpc.certChain"] == str(tmp_path / "certificate.pem")
    assert (tmp_path / "key.pem").read_text() == PEM[PEM.index("-----BEGIN") :]


@pytest.mark.parametrize("status", [1, 2, -9])
@pytest.mark.parametrize(
    ("said", "told"), [(("out", " err\n"), "err"), (("out\n", ""), "out"), (("x" * 2000, ""), "x" * 1000)]
)
def test_a_tool_that_fails_is_quoted(
    tools: Tools, tmp_path: Path, said: tuple[str, str], told: str, status: int
) -> None:
    tools.returncode, tools.said = status, said
    with pytest.raises(RunFailedError) as failed:
        encryption.properties("tls", tmp_path)
    assert str(failed.value) == f"keytool made no key store: {told}"


def test_a_tool_that_never_ends_is_told(tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hangs(command: Sequence[str], **_: Any) -> Any:
        raise subprocess.TimeoutExpired(list(command), 60)

    monkeypatch.setattr(encryption.subprocess, "run", hangs)
    with pytest.raises(RunFailedError, match=r"keytool made no key store within 60 s\."):
        encryption.properties("tls", tmp_path)


def test_the_keytool_of_the_chosen_java_comes_first(
    tools: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))
    assert encryption._keytool() == Path("/usr/bin/keytool")  # which has none
    own = tmp_path / "jdk" / "bin" / "keytool"
    own.parent.mkdir(parents=True)
    own.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert encryption._keytool() == own
    encryption.properties("tls", tmp_path)
    assert tools.asked[0][0][0] == str(own)
