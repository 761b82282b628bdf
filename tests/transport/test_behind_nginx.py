"""A channel through a real nginx, with the configuration of docs/deploy.md."""

import shutil

import pytest
import trio

from tests.support import guide
from tests.support.certificates import write_certificates
from transport import SocketTransport, UnreachableError
from transport.testing.case import LARGE, Lab

AROUND = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
{server}
}}
"""


@pytest.mark.skipif(shutil.which("nginx", path="/usr/sbin:/usr/bin") is None, reason="there is no nginx")
async def test_a_channel_passes_nginx_as_the_page_sets_it_up(nursery, monkeypatch, tmp_path):
    write_certificates(tmp_path, "s0.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    lab = Lab(SocketTransport(), "ws://127.0.0.1:0/fsl", nursery)
    await lab.serve()
    (server,) = guide.blocks("docs/deploy.md", "nginx")
    port = await free_port()
    for shown, used in (
        ("443", f"127.0.0.1:{port}"),
        ("/etc/ssl", str(tmp_path)),
        ("127.0.0.1:7080", lab.address.split("/")[2]),
    ):
        assert shown in server
        server = server.replace(shown, used)
    (tmp_path / "nginx.conf").write_text(AROUND.format(folder=tmp_path, server=server))
    words = ["/usr/sbin/nginx", "-p", str(tmp_path), "-c", "nginx.conf", "-e", str(tmp_path / "log")]
    process = await trio.lowlevel.open_process(words)
    try:
        lab.address = f"wss://127.0.0.1:{port}/fsl"
        async with await dialled(lab) as channel:
            for size in (0, 100, 3_000_000):
                async with trio.open_nursery() as sending:
                    sending.start_soon(channel.send, bytes(size))
                    assert await channel.receive(LARGE) == bytes(size)
        assert lab.failures == []
        with pytest.raises(UnreachableError, match=r"the answer is 404; check the path"):
            await SocketTransport().connect(f"wss://127.0.0.1:{port}/other")
    except BaseException:
        print((tmp_path / "log").read_text())
        raise
    finally:
        process.kill()
        await process.wait()


async def dialled(lab):
    """A channel, once nginx listens."""
    with trio.fail_after(30):
        while True:
            try:
                return await lab.dial()
            except UnreachableError as error:
                if "nothing listens" not in str(error):
                    raise
                await trio.sleep(0.02)


async def free_port() -> int:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        return listener.socket.getsockname()[1]
