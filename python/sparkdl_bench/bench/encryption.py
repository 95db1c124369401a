"""Spark's own ways of encrypting what travels in-band, as properties of a session: for the benchmarks and the tests."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError, RunFailedError

OFF, TLS, TLS_OPENSSL = "off", "tls", "tls-openssl"
_AUTHENTICATED = {"spark.authenticate": "true"}
_CRYPTO = {
    **_AUTHENTICATED,
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
}
_PROPERTIES: dict[str, dict[str, str]] = {
    OFF: {},
    # AES in counter mode, Spark's default: what travels cannot be read, but can be tampered with.
    "crypto": _CRYPTO,
    "crypto-gcm": {**_CRYPTO, "spark.network.crypto.cipher": "AES/GCM/NoPadding"},
    "sasl": {**_AUTHENTICATED, "spark.authenticate.enableSaslEncryption": "true"},
    # By the JDK.
    TLS: _AUTHENTICATED,
    # By the BoringSSL that Spark brings for Netty.
    TLS_OPENSSL: _AUTHENTICATED,
}
CHOICES = tuple(_PROPERTIES)
_SINCE_SPARK_4 = ("crypto-gcm", TLS, TLS_OPENSSL)
_TIMEOUT_S = 60.0


def missing(encryption: str, spark_version: str) -> str | None:
    """Why an encryption cannot be used here; None when it can. Refuses a name that is none."""
    if encryption not in CHOICES:
        raise ConfigurationError(f"encryption '{encryption}' is not known; valid: {', '.join(CHOICES)}.")
    if encryption in _SINCE_SPARK_4 and spark_version.startswith("3."):
        return f"Encryption '{encryption}' came with Spark 4.0, and this is Spark {spark_version}."
    if encryption in (TLS, TLS_OPENSSL) and not _keytool():
        return f"Encryption '{encryption}' needs a key store, which keytool makes; it comes with a JDK: set JAVA_HOME."
    if encryption == TLS_OPENSSL and not shutil.which("openssl"):
        return f"Encryption '{encryption}' needs a key as PEM, which the program openssl makes; install it."
    return None


def properties(encryption: str, folder: Path) -> dict[str, str]:
    """The Spark properties of an encryption, with fresh secrets.

    Args:
        encryption: one of `CHOICES`.
        folder: where `tls` and `tls-openssl` leave their keys, which the executors read too; the caller removes them.
    """
    found = dict(_PROPERTIES[encryption])
    if encryption != OFF:
        found["spark.authenticate.secret"] = secrets.token_hex(32)
    if encryption not in (TLS, TLS_OPENSSL):
        return found
    store, password = folder / ("keys.p12" if encryption == TLS else "openssl.p12"), secrets.token_hex(16)
    _make_store(store, password)
    return {**found, **_tls(store, password), **(_openssl(store, password) if encryption == TLS_OPENSSL else {})}


def _make_store(store: Path, password: str) -> None:
    """A key pair of this host that trusts itself alone."""
    command = [
        *(str(_keytool()), "-genkeypair", "-alias", "sparkdl", "-keyalg", "EC", "-groupname", "secp256r1"),
        *("-validity", "2", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"),
        *("-keystore", str(store), "-storepass:env", "SPARKDL_STORE_PASSWORD"),
    ]
    _run(command, password, "keytool made no key store")
    store.chmod(0o600)


def _tls(store: Path, password: str) -> dict[str, str]:
    """The properties that turn RPC TLS on with it."""
    settings = {"spark.ssl.rpc.enabled": "true", "spark.ssl.rpc.protocol": "TLSv1.3"}
    for kind in ("keyStore", "trustStore"):
        settings |= {
            f"spark.ssl.rpc.{kind}": str(store),
            f"spark.ssl.rpc.{kind}Type": "PKCS12",
            f"spark.ssl.rpc.{kind}Password": password,
        }
    return {**settings, "spark.ssl.rpc.keyPassword": password}


def _openssl(store: Path, password: str) -> dict[str, str]:
    """What Spark needs besides to encrypt by Netty's BoringSSL: key and certificate as PEM."""
    key, certificate = store.with_name("key.pem"), store.with_name("certificate.pem")
    reading = ["openssl", "pkcs12", "-in", str(store), "-passin", "env:SPARKDL_STORE_PASSWORD"]
    for what, file in (("-nocerts", key), ("-nokeys", certificate)):
        file.touch(mode=0o600)
        _run([*reading, what, "-nodes", "-out", str(file)], password, "openssl made no PEM file")
    # Netty reads PKCS #8 alone, and openssl writes lines about the store before it.
    text = key.read_text(encoding="utf-8")
    key.write_text(text[text.index("-----BEGIN") :], encoding="utf-8")
    return {
        "spark.ssl.rpc.openSslEnabled": "true",
        "spark.ssl.rpc.privateKey": str(key),
        "spark.ssl.rpc.certChain": str(certificate),
    }


def _run(command: list[str], password: str, failure: str) -> None:
    environment = {**os.environ, "SPARKDL_STORE_PASSWORD": password}
    try:
        done = subprocess.run(  # noqa: S603 (the command is ours)
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"{failure} within {_TIMEOUT_S:.0f} s.") from error
    if done.returncode != 0:
        raise RunFailedError(f"{failure}: {(done.stderr or done.stdout).strip()[-1000:]}")


def _keytool() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    beside = Path(home, "bin", "keytool") if home else None
    if beside and beside.is_file():
        return beside
    found = shutil.which("keytool")
    return Path(found) if found else None
