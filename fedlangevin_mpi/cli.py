"""The command line, thin: every command parses its arguments and calls one function. `run` and `resume` start MPI."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fedlangevin_mpi import __version__
from fedlangevin_mpi.errors import FedLangevinError

if TYPE_CHECKING:
    from fedlangevin_mpi.comm.world import World


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its status: 0 done, 1 failed, 2 wrong config or command line, 75 `resume` goes on."""
    parsed = _parse(arguments)
    try:
        parsed.command(parsed)
        status = 0
    except FedLangevinError as e:
        if getattr(parsed, "speaks", lambda: True)():
            print(f"fedlangevin: {e}", file=sys.stderr)
        status = e.exit_status
        if arguments is None:
            _leave_at_once(parsed, status)
    except BrokenPipeError:  # as in `fedlangevin summary DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.stdout.flush()
    if getattr(parsed, "outlived", False):
        _leave_at_once(parsed, status)
    sys.exit(status)


def _leave_at_once(parsed: argparse.Namespace, status: int) -> NoReturn:
    # A file that could not be written is still open (store.writer): HDF5 would close it on Python's way out, and crash.
    sys.stdout.flush()
    sys.stderr.flush()
    if getattr(parsed, "outlived", False):
        # MPI_Finalize may wait for the dead for ever. Without it, a status other than 0 ends ranks that still speak.
        time.sleep(0 if status == 0 or parsed.speaks() else 1.0)
    elif (mpi := sys.modules.get("mpi4py.MPI")) is not None:
        mpi.Finalize()
    os._exit(status)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    # argparse takes overrides that follow an option for strangers.
    parser = _parser()
    parsed, rest = parser.parse_known_args(arguments)
    strange = [text for text in rest if text.startswith("-") or not hasattr(parsed, "overrides")]
    if strange:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if rest:
        parsed.overrides += rest
    return parsed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "fedlangevin", description="Federated and decentralised Bayesian sampling over MPI."
    )
    parser.add_argument("--version", action="version", version=f"fedlangevin {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = _command(commands, "run", _run, "sample; start it with mpirun, or give --ranks")
    run.add_argument("config", help="a YAML file")
    run.add_argument("overrides", nargs="*", metavar="key=value", help="as algorithm.step_size=1e-3")
    run.add_argument("--output", metavar="DIR", help="the run's folder, instead of the config's output.directory")
    run.add_argument("--force", action="store_true", help="replace a run that the folder holds")
    run.add_argument("--ranks", type=_positive, metavar="N", help="start mpirun with N ranks")
    run.add_argument("--quiet", action="store_true", help="say nothing but warnings and errors")

    resume = _command(commands, "resume", _resume, "go on with a run that was stopped, from its last checkpoint")
    resume.add_argument("directory", type=Path, metavar="DIR", help="the run's folder")
    resume.add_argument("overrides", nargs="*", metavar="key=value", help="iterations=N may grow")
    resume.add_argument("--ranks", type=_positive, metavar="N", help="start mpirun with N ranks")
    resume.add_argument("--quiet", action="store_true", help="say nothing but warnings and errors")

    summary = _command(commands, "summary", _summary, "a table of the posterior, of communication and of predictions")
    summary.add_argument("directory", type=Path, metavar="DIR")
    summary.add_argument("--json", action="store_true", help="as JSON")
    summary.add_argument("--client", type=int, metavar="I", help="of one client instead of the average over clients")
    summary.add_argument("--reference", type=Path, metavar="DIR", help="the distance to this run, too")
    summary.add_argument("--stein", action="store_true", help="the kernel Stein discrepancy, too: reads all shards")

    reference = _command(commands, "reference", _reference, "draw a config's posterior by NUTS, in one process")
    reference.add_argument("config", help="a YAML file")
    reference.add_argument("overrides", nargs="*", metavar="key=value", help="as clients=4")
    reference.add_argument("--output", type=Path, metavar="DIR", required=True, help="the folder of the draws")
    reference.add_argument("--force", action="store_true", help="replace a run that the folder holds")
    reference.add_argument("--quiet", action="store_true", help="say nothing but warnings and errors")
    for name, default in (("draws", 1000), ("tune", 1000), ("chains", 4)):
        text = f"{'of a chain, ' if name != 'chains' else ''}{default} by default"
        reference.add_argument(f"--{name}", type=_positive, metavar="N", default=default, help=text)

    export = _command(commands, "export", _export, "write draws as ArviZ-schema NetCDF")
    export.add_argument("directory", type=Path, metavar="DIR")
    export.add_argument("file", type=Path, metavar="FILE.nc")
    export.add_argument("--client", type=int, metavar="I", help="of one client instead of the average over clients")

    watch = _command(commands, "watch", _watch, "follow a run that is still going, until it ends")
    watch.add_argument("directory", type=Path, metavar="DIR")
    watch.add_argument("--once", action="store_true", help="show it as it is, and return")
    watch.add_argument("--seconds", type=_positive, default=2, metavar="S", help="between two looks")

    report = _command(commands, "report", _report, "a page on a run, or one that compares several")
    report.add_argument("directories", type=Path, nargs="+", metavar="DIR")
    report.add_argument("--output", type=Path, metavar="FILE.html", help="instead of DIR/report.html")

    exact = _command(commands, "exact", _exact, "posterior, stationary law and bias of a sampler on a gaussian config")
    exact.add_argument("config", help="a YAML file")
    exact.add_argument("overrides", nargs="*", metavar="key=value")
    exact.add_argument("--json", action="store_true", help="as JSON")

    topology = _command(commands, "topology", _topology, "what a topology file makes: a graph and its mixing matrix")
    topology.add_argument("action", choices=("show", "check"), help="show all of it, or check it in one line")
    topology.add_argument("file", type=Path, metavar="FILE", help="a YAML file, as in topologies/")
    topology.add_argument("--clients", type=_positive, metavar="N", help="how many; not for a fixed number of nodes")
    topology.add_argument("--picture", type=Path, metavar="FILE", help="with show: draw the graph, .png or .svg")
    topology.add_argument("--config", metavar="FILE", help="with show: the step sizes that this config's clients allow")

    listing = _command(commands, "list", _list, "what can be named in a config")
    listing.add_argument("kind", choices=("algorithms", "models", "data", "topologies"))
    _command(commands, "schema", _schema, "the JSON schema of the config")
    return parser


def _command(commands: Any, name: str, function: Callable[..., None], text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=function)
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {number}; allowed: 1, 2, ...")
    return number


def _run(arguments: argparse.Namespace) -> None:
    overrides = list(arguments.overrides)
    if arguments.output is not None:
        overrides.append(f"output.directory={json.dumps(arguments.output)}")
    if arguments.ranks is not None:
        _launch(arguments, overrides)
    with _on_this_rank(arguments) as world:
        from fedlangevin_mpi.config import read_config
        from fedlangevin_mpi.runtime.run import run

        config, source = world.from_root(lambda: read_config(arguments.config, overrides))
        how = {"terminal": _terminal(arguments), "on_loss": arguments.on_loss}
        _print_end(arguments, run(config, source=source, force=arguments.force, **how))


@contextlib.contextmanager
def _on_this_rank(arguments: argparse.Namespace) -> Iterator[World]:
    from fedlangevin_mpi.runtime.signals import StopRequest

    with StopRequest():  # already here: to import what follows takes a while
        from fedlangevin_mpi.comm.world import World

        with World() as world:
            rank = world.rank

            def on_loss(new: int) -> None:
                nonlocal rank
                rank, arguments.outlived = new, True

            arguments.speaks, arguments.on_loss = lambda: rank == 0, on_loss
            with _log_to_stderr(arguments.speaks, arguments.quiet):
                yield world


def _print_end(arguments: argparse.Namespace, directory: Path) -> None:
    from fedlangevin_mpi.evaluate.summary_table import print_summary
    from fedlangevin_mpi.store.metadata import SUMMARY_FILE

    if getattr(arguments, "speaks", lambda: True)() and not arguments.quiet:
        print_summary(json.loads((directory / SUMMARY_FILE).read_text()), directory)


def _terminal(arguments: argparse.Namespace) -> int | None:
    from fedlangevin_mpi.runtime.progress import terminal_width

    return None if arguments.quiet else terminal_width()


def _resume(arguments: argparse.Namespace) -> None:
    if arguments.ranks is not None:
        _launch_resume(arguments)
    with _on_this_rank(arguments):
        from fedlangevin_mpi.runtime.resume import resume

        how = {"terminal": _terminal(arguments), "on_loss": arguments.on_loss}
        resume(arguments.directory, arguments.overrides, **how)
        _print_end(arguments, arguments.directory)


def _launch_resume(arguments: argparse.Namespace) -> NoReturn:
    from fedlangevin_mpi.runtime.launcher import become_mpirun
    from fedlangevin_mpi.runtime.placement import placement_of
    from fedlangevin_mpi.runtime.resume import read_for_resume

    config, _ = read_for_resume(arguments.directory, arguments.overrides)
    placement = placement_of(config, arguments.ranks)
    program = ["resume", *_quiet(arguments), "--", str(arguments.directory), *arguments.overrides]
    surviving = config.on_failure == "shrink"
    become_mpirun(arguments.ranks, program, placement, arguments.directory, surviving)


def _launch(arguments: argparse.Namespace, overrides: list[str]) -> NoReturn:
    # What can be found wrong without MPI is said here, without mpirun's own words around it.
    from fedlangevin_mpi.config import read_config
    from fedlangevin_mpi.runtime.launcher import become_mpirun
    from fedlangevin_mpi.runtime.placement import placement_of

    config, _ = read_config(arguments.config, overrides)
    placement = placement_of(config, arguments.ranks)
    flags = [*(["--force"] if arguments.force else []), *_quiet(arguments)]
    program = ["run", *flags, "--", arguments.config, *overrides]
    surviving = config.on_failure == "shrink"
    become_mpirun(arguments.ranks, program, placement, Path(config.output.directory), surviving)


def _quiet(arguments: argparse.Namespace) -> list[str]:
    return ["--quiet"] if arguments.quiet else []


@contextlib.contextmanager
def _log_to_stderr(speaks: Callable[[], bool], quiet: bool) -> Iterator[None]:
    from fedlangevin_mpi.runtime.progress import CLEAR_LINE, terminal_width

    logger = logging.getLogger("fedlangevin_mpi")
    logger.setLevel(logging.DEBUG)
    handler = logging.StreamHandler()
    handler.addFilter(lambda _: speaks())
    handler.setLevel(logging.WARNING if quiet else logging.INFO)
    # On a terminal a line of the log takes the place of the bar, which is drawn again.
    before = CLEAR_LINE if terminal_width() is not None else ""
    handler.setFormatter(logging.Formatter(f"{before}fedlangevin: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _summary(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.evaluate.held_out import summary_of
    from fedlangevin_mpi.evaluate.summary_table import print_summary
    from fedlangevin_mpi.store.reader import open_run

    run = open_run(arguments.directory)
    summary = summary_of(run, arguments.client)
    if arguments.reference is not None or arguments.stein:
        from fedlangevin_mpi.evaluate.comparison import compare, stein_discrepancy

        if arguments.stein:
            summary["metrics"]["stein_discrepancy"] = stein_discrepancy(run, arguments.client)
        if arguments.reference is not None:
            summary["reference"] = compare(run, open_run(arguments.reference), arguments.client)
    if arguments.json:
        print(json.dumps(summary, indent=2))
    else:
        print_summary(summary, arguments.directory)


def _reference(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.config import read_config
    from fedlangevin_mpi.runtime.reference import Length, reference

    with _log_to_stderr(lambda: True, arguments.quiet):
        config, source = read_config(arguments.config, arguments.overrides)
        length = Length(arguments.draws, arguments.tune, arguments.chains)
        _print_end(arguments, reference(config, arguments.output, source, length, arguments.force))


def _export(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.store.export import export
    from fedlangevin_mpi.store.reader import open_run

    export(open_run(arguments.directory), arguments.file, client=arguments.client)


def _watch(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.report.watch import watch

    with contextlib.suppress(KeyboardInterrupt):  # how one stops to watch
        watch(arguments.directory, arguments.seconds, arguments.once)


def _report(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.report.html import write_report

    print(f"wrote {write_report(arguments.directories, arguments.output)}")


def _exact(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.config import read_config
    from fedlangevin_mpi.evaluate.exact_report import exact_report, print_exact_report
    from fedlangevin_mpi.topology.scheduled import mixing_of

    config, _ = read_config(arguments.config, arguments.overrides)
    matrices = mixing_of(config, config.clients).matrices if config.topologies and config.clients else []
    report = exact_report(config, [matrix.toarray() for matrix in matrices])
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print_exact_report(report)


def _topology(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.topology import read_topology
    from fedlangevin_mpi.topology.show import check_file, show

    if arguments.action == "check":
        check_file(arguments.file, arguments.clients)
        return
    topology = read_topology(arguments.file)
    if arguments.config is None:
        show(topology, arguments.clients, arguments.picture)
        return
    from fedlangevin_mpi.config import read_config
    from fedlangevin_mpi.evaluate.curvature_report import step_size_line

    config, _ = read_config(arguments.config)
    show(topology, config.clients, arguments.picture)
    print(step_size_line(config, topology))


def _list(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.algorithms import algorithms
    from fedlangevin_mpi.data import partitions, sources
    from fedlangevin_mpi.models import models
    from fedlangevin_mpi.topology import topologies, weight_rules

    kinds: dict[str, dict[str, Any]] = {
        "algorithms": dict(algorithms()),
        "models": dict(models()),
        "data": dict(sources()),
        "topologies": dict(topologies()),
    }
    for name, choice in kinds[arguments.kind].items():
        print(f"{name:24} {choice.summary}")
    if arguments.kind == "data":
        for name, partition in partitions().items():
            print(f"partition {name:14} {partition.summary}")
    if arguments.kind == "topologies":
        for name, rule in weight_rules().items():
            print(f"weights {name:16} {rule.summary}")


def _schema(arguments: argparse.Namespace) -> None:
    from fedlangevin_mpi.config import RunConfig

    print(json.dumps(RunConfig.model_json_schema(), indent=2))
