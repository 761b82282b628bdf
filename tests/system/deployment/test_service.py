"""The guide's last section and the samples at work: a machine boots systemd and runs both servers as services.

That both are on one machine is for the test's sake; each is installed by the guide's own commands, and shut in as the
unit says. Added to it is only where this Python lives.
"""

import re
import shutil
from collections.abc import Iterator

import pytest

from parties.files.models import load_model
from tests import ROOT
from tests.support.shop import assert_equal, plain_sum
from tests.system.deployment.deployed import Homes
from tests.system.deployment.machine import Machine, machine, missing

if missing():
    pytest.skip(missing(), allow_module_level=True)

KIT = ROOT / "examples" / "deployment"
PORTS = {"s0": (7000, 9470), "s1": (7001, 9471)}
HERE = "[Service]\nEnvironment=LD_LIBRARY_PATH=/opt/python/lib\n"

ROUND = """
ready() { curl --silent --show-error --fail --retry 300 --retry-delay 1 --retry-all-errors http://127.0.0.1:$1/readyz; }
submit() { (cd /root/$1 && /opt/fsl-async/bin/fsl-async submit task.toml --identity $1.key --update update.npz); }
until_so() { for try in $(seq 1500); do "$@" && return; sleep 0.2; done; failed "$@"; }
failed() { echo "never so: $*"; systemctl status --no-pager "fsl-async@*"; exit 1; }
ready 9470
ready 9471
submit anna
pid() { systemctl show --property=MainPID --value fsl-async@s0; }
is_back() { systemctl is-active --quiet fsl-async@s0 && [ $(pid) != $killed ]; }
killed=$(pid)
systemctl kill --signal=KILL fsl-async@s0
until_so is_back
ready 9470
systemctl reload fsl-async@s1
submit ben
for server in s0 s1; do until_so compgen -G "/var/lib/fsl-async/$server/models/*"; done
systemctl stop fsl-async@s0 fsl-async@s1
systemctl show --property=Result,ExecMainStatus fsl-async@s0 fsl-async@s1
stat --format='%n %U %a' /var/lib/fsl-async/s? /var/lib/fsl-async/s?/*.sqlite /etc/fsl-async/*.key
find /var/cache/fsl-async -name '*.nbi' | wc -l
"""


@pytest.fixture
def made(tmp_path) -> Iterator[Machine]:
    """The machine, with what each operator and each client has in a folder of its own."""
    with machine(tmp_path) as made:
        made.install([ROOT / name for name in ("fsl_async", "transport", "parties")], "/opt/fsl-async")
        homes = Homes(made.root / "root")
        homes.lay_out([f"127.0.0.1:{port}" for port, _ in PORTS.values()], ["anna", "ben"])
        for name in PORTS:
            shutil.copytree(KIT, homes.home(name) / "examples" / "deployment")
        for name, (port, looking) in PORTS.items():
            sample = homes.home(name) / "examples" / "deployment" / f"{name}.toml"
            text = sample.read_text().replace("clients = 100 ", "clients = 2 ")
            sample.write_text(text.replace(":7000", f":{port}").replace(":9470", f":{looking}"))
        here = made.root / "etc/systemd/system/fsl-async@.service.d/here.conf"
        here.parent.mkdir(parents=True)
        here.write_text(HERE)
        yield made


def installed_as_the_guide_says(server: str) -> str:
    """The commands of the guide's last section for one server, after those that install the program."""
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs/deploy.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for line in commands.splitlines() if "/opt/fsl-async" not in line]
    assert lines[-1] == "systemctl enable --now fsl-async@s0"
    return "\n".join([f"cd /root/{server}", *(line.replace("s0", server) for line in lines)])


def test_the_unit_runs_both_servers_through_a_kill_and_a_round(made):
    code, said = made.boot("\n".join([*map(installed_as_the_guide_says, PORTS), ROUND]))
    assert code == 0, said
    assert said.count("Result=success\nExecMainStatus=0") == 2, said
    for server in PORTS:
        assert f"/var/lib/fsl-async/{server} fsl-async 700" in said
        assert f"/var/lib/fsl-async/{server}/store.sqlite fsl-async 600" in said
        assert f"/etc/fsl-async/{server}.key fsl-async 600" in said
        (model,) = (made.root / "var/lib/fsl-async" / server / "models").iterdir()
        assert_equal(load_model(model), plain_sum(["anna", "ben"]))
    assert int(said.splitlines()[-1]) > 0, "numba has found a place for what it compiled"
