"""Certificates, as an operator makes them: an authority, and one certificate that it has signed."""

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def write_certificates(folder: Path, name: str = "compute") -> None:
    """Write ca.pem, NAME.pem and NAME.key, of an authority whose key is thrown away."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, subject = _called("authority"), _called(name)
    ca = _certificate(issuer, issuer, authority, authority.public_key(), is_authority=True)
    certificate = _certificate(subject, issuer, authority, key.public_key(), is_authority=False)
    for path, made in ((folder / "ca.pem", ca), (folder / f"{name}.pem", certificate)):
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    place = folder / f"{name}.key"
    place.touch(mode=0o600)
    place.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(subject, issuer, signer, public_key, *, is_authority: bool) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_usage(is_authority), critical=True)  # which Python 3.13 asks of an authority
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _usage(is_authority: bool) -> x509.KeyUsage:
    uses = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, **uses)
