"""What a server's file may say of its cluster, and what is refused before anything is started."""

import pytest

from fsl_async.errors import MisuseError
from parties.deployment.compute import certificates_of
from parties.settings.party_file import ServerFile
from parties.settings.writing import to_toml
from tests.support.certificates import write_certificates
from tests.support.shop import SERVER_FILE

TLS = {"engine": "dask", "scheduler": "tls://10.0.0.5:8786", "ca": "ca.pem", "certificate": "c.pem", "key": "c.key"}


def read(folder, store="s0.sqlite", **compute) -> ServerFile:
    path = folder / "s0.toml"
    path.write_text(to_toml(SERVER_FILE | {"store": store, "compute": compute}))
    return ServerFile.load(path)


def test_a_cluster_is_named_with_its_certificates(tmp_path):
    compute = read(tmp_path, **TLS, task_seconds=2.0).compute
    assert compute
    assert (compute.scheduler, compute.task_seconds, compute.key) == (TLS["scheduler"], 2.0, tmp_path / "c.key")
    assert read(tmp_path, engine="dask", scheduler="tcp://127.0.0.1:8786").compute
    assert not read(tmp_path, engine="inline").compute
    assert not read(tmp_path).compute


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        ({**TLS, "scheduler": "tcp://10.0.0.5:8786"}, "seeds and shares would go to another host in the clear"),
        ({**TLS, "scheduler": "tcp://127.0.0.1:8786"}, "certificates are given, and compute.scheduler is tcp://"),
        ({**TLS, "scheduler": "10.0.0.5:8786"}, 'an address such as "tls://10.0.0.5:8786" expected'),
        ({**TLS, "scheduler": "tls://10.0.0.5"}, 'an address such as "tls://10.0.0.5:8786" expected'),
        ({**TLS, "scheduler": "tls://10.0.0.5:99999"}, 'an address such as "tls://10.0.0.5:8786" expected'),
        ({"engine": "dask"}, 'an address such as "tls://10.0.0.5:8786" expected'),
        ({"engine": "dask", "scheduler": TLS["scheduler"], "ca": "ca.pem"}, "compute.certificate is missing"),
        ({"scheduler": TLS["scheduler"]}, "compute.scheduler is given and compute.engine is 'threads'"),
        ({"engine": "inline", "ca": "ca.pem"}, "compute.ca is given and compute.engine is 'inline'"),
        ({"engine": "ray"}, "engine"),
        ({**TLS, "store": "memory"}, "workers are processes of their own"),
    ],
)
def test_what_is_not_whole_or_not_safe_is_refused(tmp_path, compute, said):
    with pytest.raises(MisuseError, match=r"s0\.toml") as refused:
        read(tmp_path, **compute)
    assert said in str(refused.value)


def test_certificates_are_looked_at_before_they_are_used(tmp_path):
    compute = read(tmp_path, **TLS).compute
    with pytest.raises(MisuseError, match=r"compute.ca: .*ca.pem cannot be read"):
        certificates_of(compute)
    write_certificates(tmp_path, "c")
    assert certificates_of(compute) == (tmp_path / "ca.pem", tmp_path / "c.pem", tmp_path / "c.key")
    (tmp_path / "c.key").chmod(0o640)
    with pytest.raises(MisuseError, match=r"others can read .*chmod 600"):
        certificates_of(compute)
    (tmp_path / "c.key").chmod(0o600)
    (tmp_path / "c.pem").write_text("no certificate")
    with pytest.raises(MisuseError, match="are no authority's certificate and a certificate with its key"):
        certificates_of(compute)
