"""`holdfast up`: the first machines of a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from holdfast.cli.door import say
from holdfast.cli.fleet import (
    agreed_machines,
    cloud,
    concluded,
    looked_after,
    looking_options,
)
from holdfast.cli.places import accept_option, store_option
from holdfast.cli.push import (
    NAMES,
    MadeMachines,
    NamedMachines,
    PushAsked,
    PushLoop,
    keep_up,
    push_options,
    reach_of,
)
from holdfast.cli.run import passed_on
from holdfast.cli.run import run as run_command
from holdfast.config import run_store
from holdfast.core.hosts.recover import Act, RecoverPolicy, name_of
from holdfast.core.hosts.wanted import Buy, Machines, checked, prefix_for
from holdfast.core.redact import with_secrets
from holdfast.engines.ssh.archive import listed
from holdfast.engines.ssh.engine import hosts_named
from holdfast.engines.ssh.engine import targets_of as targets_named
from holdfast.errors import ConfigurationError
from holdfast.journal.agreed import agree
from holdfast.journal.holder import RunHolder
from holdfast.journal.machines import replace_machines, write_machines
from holdfast.journal.names import check_name
from holdfast.journal.store import RunFolder, RunStore
from holdfast.provision.cloud_tpu.requests import check
from holdfast.provision.startup import Workers, startup_script

PROVIDER = "cloud-tpu"
# Options of `holdfast run` that this command says itself, or that are of one process.
NOT_PASSED_ON = {
    "name", "store", "hosts", "spares", "host_index", "host_address", "slice", "fresh",
    "as_controller", "command",
}  # fmt: skip


@click.command(short_help="Make the machines of RUN, which then train it.")
@click.argument("run")
@store_option
@accept_option
@click.option("--project", metavar="NAME", help="The project to use.")
@click.option("--zone", metavar="ZONE", help="Such as us-west4-a.")
@click.option("--type", "accelerator", metavar="TYPE", help="Such as v5litepod-8.")
@click.option("--runtime", metavar="VERSION", help="The machines' software.")
@click.option("--slices", type=int, default=1, metavar="N", help="More than one need --queued.")
@click.option(
    "--queued", "is_queued", is_flag=True, help="Through the queue: a queued resource, not a node."
)
@click.option(
    "--buy",
    type=click.Choice([str(one) for one in Buy]),
    default=str(Buy.ON_DEMAND),
    callback=lambda _context, _parameter, text: Buy(text),
    help="How they are paid for.",
)
@click.option("--setup", metavar="FILE", help="A shell script that each machine runs first.")
@click.option(
    "--workers",
    type=click.Choice([str(one) for one in Workers]),
    default=str(Workers.FIRST),
    help="Of several hosts: the first starts COMMAND, supervised, or each does, by itself.",
)
@click.option("--no-agent", is_flag=True, help="Do not start the agent beside the run.")
@click.option(
    "--service-account", default="", metavar="EMAIL", help="The service account of the machines."
)
@click.option("--network", default="", metavar="NAME", help="The network of the machines.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    callback=lambda _context, _parameter, texts: tuple(map(_label, texts)),
    metavar="KEY=VALUE",
    help="Another label.",
)
@click.option(
    "--no-autocheckpoint",
    "autocheckpoint",
    is_flag=True,
    callback=lambda _context, _parameter, is_given: not is_given,
    help="Do not ask for a warning ahead of maintenance.",
)
@click.option("--api", default="v2alpha1", metavar="VERSION", help="Of Cloud TPU: v2alpha1 or v2.")
@click.option("--dry-run", is_flag=True, help="Show what would be made, and its script.")
@looking_options()
@push_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def up(
    context: click.Context,
    /,
    run: str,
    store: str | None,
    accept_stored: bool,
    setup: str | None,
    workers: str,
    no_agent: bool,
    dry_run: bool,
    every: float,
    limit: float | None,
    command: Sequence[str],
    **made_of: Any,
) -> None:
    """Make the machines of RUN, which then train it.

    Write the command after `--`. The machines carry the run's label; at each start they run a
    script that ends in `holdfast run`, in the same store: name one that they can reach. Asked
    again, it makes what is not there yet and nothing twice.

    With --push the working tree is brought onto all machines over SSH instead, those of --machines
    or made ones, COMMAND runs on each under `holdfast run`, and this command stays until RUN is
    done: what ends is started again, what is lost is made again with --delete. Options of
    `holdfast run`, such as --save-every, are passed on.
    """
    place = run_store(store)
    runs = RunStore.at(place)
    same = place if "://" in place else str(runs.root)  # wherever the machine's script begins
    pushed = _pushed(context, same, command, made_of)
    if pushed is not None and made_of["named"]:
        sys.exit(_kept_up_named(runs.open(check_name(run), command=command), pushed, limit))
    _refuse_lacking(made_of)
    if workers == Workers.EACH and "://" in same:
        raise ConfigurationError(
            f"--workers each: ranks without a supervisor share a folder, and {same} is none; "
            "name one that is mounted on every host"
        )
    wanted = _machines(run, "0" * 12, made_of)
    check(wanted)  # what cannot be is said before anything is made
    script = (
        ""
        if pushed is not None
        else startup_script(
            check_name(run),
            same,
            command,
            _setup(setup),
            workers=Workers(workers),
            one_host=wanted.is_one_host,
            agent=not no_agent,
        )
    )
    if hidden := with_secrets([line.strip() for line in script.splitlines()]):
        say(
            "the script is kept as it is, in the run's store and in the machines' metadata, and a "
            f"secret is in it ({', '.join(hidden)}): have it fetched there instead"
        )
    if dry_run:
        what = f"{wanted.slices} slices" if wanted.slices > 1 else "one slice"
        name = name_of(wanted.prefix, 1)
        click.echo(f"would make {name}: {what} of {wanted.accelerator}, {wanted.buy}\n")
        click.echo(script, nl=False)
        if pushed is not None:
            click.echo(f"would push {len(listed(pushed.root, made_of['exclude']))} files")
        return
    # No library, or no credentials: said before all else.
    with cloud(wanted.project, wanted.zone, wanted.api):
        folder = runs.open(run, command=command)
    made = replace(_machines(run, folder.identity.run_id, made_of), script=script)
    if pushed is not None:
        made = replace(made, metadata=_own_key(made_of))
        sys.exit(_kept_up(folder, made, accept_stored, pushed, every, limit))
    sys.exit(_made(folder, made, accept_stored, every, limit))


def _machines(run: str, run_id: str, made_of: Mapping[str, Any]) -> Machines:
    """`made_of`: the flags that are named as the fields are."""
    prefix = prefix_for(run, run_id)
    fields = {name: made_of[name] for name in Machines.__slots__ if name in made_of}
    return checked(Machines(provider=PROVIDER, prefix=prefix, owner=run_id, run=run, **fields))


def _refuse_lacking(made_of: Mapping[str, Any]) -> None:
    needed = {"project": "--project", "zone": "--zone", "accelerator": "--type",
              "runtime": "--runtime"}  # fmt: skip
    if lacking := [flag for name, flag in needed.items() if made_of[name] is None]:
        raise ConfigurationError(
            f"there is nothing to make machines of: say {', '.join(lacking)} too, or name machines "
            "that there are, with --machines and --push"
        )


def _pushed(
    context: click.Context, store: str, command: Sequence[str], made_of: dict[str, Any]
) -> PushAsked | None:
    """What is to be pushed; None: nothing. Raises ConfigurationError."""
    flags = passed_on(context, NOT_PASSED_ON)
    if made_of["push"] is None:
        defaults = {one.name: one.get_default(context) for one in up.params}
        given = [name for name in NAMES if made_of[name] and made_of[name] != defaults[name]]
        if given or flags:
            words = flags[0] if flags else f"--{given[0].replace('_', '-')}"
            raise ConfigurationError(
                f"{words.replace('named', 'machines')} goes with --push FOLDER"
            )
        return None
    if context.params["setup"]:
        raise ConfigurationError("with --push, say --install LINE in the place of --setup FILE")
    if made_of["spares"] is not None and made_of["named"] is None:
        raise ConfigurationError(
            "--spares goes with --machines: of machines that are made, slices are made again"
        )
    root = Path(made_of["push"]).expanduser()
    asked = PushAsked(root, store, tuple(flags), tuple(command), made_of)
    asked.check()
    return asked


def _own_key(made_of: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Let that key in, if one was named with its user: by the machines' metadata."""
    key, user = made_of["ssh_key"], made_of["ssh_user"]
    public = Path(f"{key}.pub").expanduser()
    if not key or not user or made_of["through"] != "ssh" or not public.exists():
        return ()
    return (("ssh-keys", f"{user}:{public.read_text(encoding='utf-8').strip()}"),)


def _kept_up_named(folder: RunFolder, pushed: PushAsked, limit_s: float | None) -> int:
    named = targets_named(hosts_named(pushed.made_of["named"]))
    spares = pushed.made_of["spares"] or 0
    if not 0 <= spares < len(named):
        raise ConfigurationError(
            f"--spares {spares}: of the {len(named)} that --machines names, one at least trains"
        )
    reach = reach_of(folder, pushed.made_of, None)
    return keep_up(folder, pushed, lambda _loop: NamedMachines(named), reach, limit_s)


def _kept_up(
    folder: RunFolder,
    machines: Machines,
    accept_stored: bool,
    pushed: PushAsked,
    every_s: float,
    limit_s: float | None,
) -> int:
    _settle(folder, machines, accept_stored)
    made_of = pushed.made_of
    policy = RecoverPolicy(may_create=True, may_delete=made_of["delete"])
    loops: list[PushLoop] = []

    def knows_gone(holder: RunHolder) -> bool:
        return any(one.knows_gone(holder) for one in loops)

    with looked_after(folder, machines, policy, knows_gone) as recovery:

        def source(loop: PushLoop) -> MadeMachines:
            loops.append(loop)
            recovery.let_go = loop.let_go
            return MadeMachines(machines, recovery, every_s, made_of["internal_ip"])

        return keep_up(folder, pushed, source, reach_of(folder, made_of, machines), limit_s)


def _made(
    folder: RunFolder,
    machines: Machines,
    accept_stored: bool,
    every_s: float,
    limit_s: float | None,
) -> int:
    _settle(folder, machines, accept_stored)
    policy = RecoverPolicy(may_create=True)
    with looked_after(folder, machines, policy) as recovery:
        try:
            return concluded(recovery.run(every_s, limit_s))
        except KeyboardInterrupt:
            say(f"what was asked for stays, is made, and paid for: `holdfast health {folder.name}` "
                "shows it, and the same command waits for it again")  # fmt: skip
            raise


def _settle(folder: RunFolder, machines: Machines, accept_stored: bool) -> None:
    """Write down what the run's machines are made of; others only while there are none."""
    known = write_machines(folder, machines)
    if known == machines:
        agree(folder, machines)
        return
    agreed_machines(folder, accept_stored)
    with looked_after(folder, known, RecoverPolicy()) as recovery:
        recovery.book.hold()
        decision = recovery.look()
        if decision.action.act is not Act.CREATE:
            raise ConfigurationError(
                f"run {folder.name!r} has machines, made of something else "
                f"({decision.reason}); use another name, or delete those first"
            )
        replace_machines(folder, machines)
        agree(folder, machines)
        # What failed was of something else: these need not wait for that.
        fresh = replace(recovery.book.load(), wait_ns=0, not_before_unix_ns=0, why="")
        recovery.book.save(fresh)


def _setup(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the script {path} cannot be read ({error})") from error


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"{text!r} is not a label; write NAME=VALUE")
    return key, value


up.params += [one for one in run_command.params if one.name not in NOT_PASSED_ON]
