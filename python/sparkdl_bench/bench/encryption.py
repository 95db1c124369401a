"""Spark's own ways of encrypting what travels in-band, as properties of a session: for the benchmarks and the tests."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from sparkdl_bench.errors import ConfigurationError, RunFailedError

OFF, TLS = "off", "tls"
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
    TLS: _AUTHENTICATED,
}
CHOICES = tuple(_PROPERTIES)
_SINCE_SPARK_4 = ("crypto-gcm", TLS)
_KEYTOOL_TIMEOUT_S = 60.0


def missing(encryption: str, spark_version: str) -> str | None:
    """Why an encryption cannot be used here; None when it can. Refuses a name that is none."""
    if encryption not in CHOICES:
        raise ConfigurationError(f"encryption '{encryption}' is not known; valid: {', '.join(CHOICES)}.")
    if encryption in _SINCE_SPARK_4 and spark_version.startswith("3."):
        return f"Encryption '{encryption}' came with Spark 4.0, and this is Spark {spark_version}."
    if encryption == TLS and not _keytool():
        return "Encryption 'tls' needs a key store, which keytool makes; it comes with a JDK: set JAVA_HOME."
    return None


def properties(encryption: str, folder: Path) -> dict[str, str]:
    """The Spark properties of an encryption, with fresh secrets.

    Args:
        encryption: one of `CHOICES`.
        folder: where `tls` leaves its key store, which the executors read too; the caller removes it.
    """
    found = dict(_PROPERTIES[encryption])
    if encryption != OFF:
        found["spark.authenticate.secret"] = secrets.token_hex(32)
    return {**found, **_tls(folder)} if encryption == TLS else found


def _tls(folder: Path) -> dict[str, str]:
    """A key pair of this host that trusts itself alone, and the properties that turn RPC TLS on with it."""
    store, password = folder / "keys.p12", secrets.token_hex(16)
    command = [
        *(str(_keytool()), "-genkeypair", "-alias", "sparkdl", "-keyalg", "EC", "-groupname", "secp256r1"),
        *("-validity", "2", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"),
        *("-keystore", str(store), "-storepass:env", "SPARKDL_STORE_PASSWORD"),
    ]
    environment = {**os.environ, "SPARKDL_STORE_PASSWORD": password}
    done = subprocess.run(  # noqa: S603 (the command is ours)
        command, env=environment, capture_output=True, text=True, timeout=_KEYTOOL_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        raise RunFailedError(f"keytool made no key store: {(done.stderr or done.stdout).strip()[-1000:]}")
    store.chmod(0o600)
    settings = {"spark.ssl.rpc.enabled": "true", "spark.ssl.rpc.protocol": "TLSv1.3"}
    for kind in ("keyStore", "trustStore"):
        settings |= {
            f"spark.ssl.rpc.{kind}": str(store),
            f"spark.ssl.rpc.{kind}Type": "PKCS12",
            f"spark.ssl.rpc.{kind}Password": password,
        }
    return {**settings, "spark.ssl.rpc.keyPassword": password}


def _keytool() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    beside = Path(home, "bin", "keytool") if home else None
    if beside and beside.is_file():
        return beside
    found = shutil.which("keytool")
    return Path(found) if found else None
