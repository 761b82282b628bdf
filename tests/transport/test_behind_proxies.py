"""A channel through a real nginx and a real Caddy, with the configurations of docs/deploy.md."""

import os
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


CADDY = """\
{{
    admin off
    auto_https disable_redirects
    storage file_system {folder}
}}
{server}
"""


def set_up_nginx(folder, port: int, behind: str) -> list[str]:
    """Write its file; what starts it."""
    changes = {"443": f"127.0.0.1:{port}", "/etc/ssl": str(folder), "127.0.0.1:7080": behind}
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder, server=shown("nginx", changes)))
    return ["/usr/sbin/nginx", "-p", str(folder), "-c", "nginx.conf", "-e", str(folder / "log")]


def set_up_caddy(folder, port: int, behind: str) -> list[str]:
    """The same; it gets no certificate of its own here."""
    ours = f"    bind 127.0.0.1\n    tls {folder}/s0.example.org.pem {folder}/s0.example.org.key\n"
    changes = {"s0.example.org {\n": f"https://127.0.0.1:{port} {{\n{ours}", "127.0.0.1:7080": behind}
    (folder / "Caddyfile").write_text(CADDY.format(folder=folder, server=shown("caddy", changes)))
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def shown(language: str, changes: dict[str, str]) -> str:
    """The page's block, with what is other here."""
    (server,) = guide.blocks("docs/deploy.md", language)
    for there, here in changes.items():
        assert there in server
        server = server.replace(there, here)
    return server


@pytest.mark.parametrize(("program", "elsewhere"), [("nginx", 404), ("caddy", 200)])
async def test_a_channel_passes_a_proxy_as_the_page_sets_it_up(nursery, monkeypatch, tmp_path, program, elsewhere):
    if shutil.which(program, path="/usr/sbin:/usr/bin") is None:
        pytest.skip(f"there is no {program}")
    write_certificates(tmp_path, "s0.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    lab = Lab(SocketTransport(), "ws://127.0.0.1:0/fsl", nursery)
    await lab.serve()
    port = await free_port()
    set_up = set_up_nginx if program == "nginx" else set_up_caddy
    words = set_up(tmp_path, port, lab.address.split("/")[2])
    with (tmp_path / "said").open("wb") as said:
        process = await trio.lowlevel.open_process(
            words, stderr=said, env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)}
        )
    try:
        lab.address = f"wss://127.0.0.1:{port}/fsl"
        async with await dialled(lab) as channel:
            for size in (0, 100, 3_000_000):
                async with trio.open_nursery() as sending:
                    sending.start_soon(channel.send, bytes(size))
                    assert await channel.receive(LARGE) == bytes(size)
        assert lab.failures == []
        with pytest.raises(UnreachableError, match=f"the answer is {elsewhere}; check the path"):
            await SocketTransport().connect(f"wss://127.0.0.1:{port}/other")
    except BaseException:
        print((tmp_path / "log").read_text() if program == "nginx" else "", (tmp_path / "said").read_text())
        raise
    finally:
        process.kill()
        await process.wait()


async def dialled(lab):
    """A channel, once the proxy listens."""
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
