"""The command line: each command writes a folder that the next one reads."""

import sys
from importlib.metadata import version

import tyro

from leapling.cli.common import log
from leapling.cli.experiments import Demo, Reproduce
from leapling.cli.fitting import Bench, FitCommand
from leapling.cli.runs import Check, Diagnose, Sample
from leapling.cli.training import Train


def main(arguments: list[str] | None = None) -> int:
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        print(f"leapling {version('leapling')}")
        return 0
    commands = {
        "fit": FitCommand,
        "demo": Demo,
        "train": Train,
        "sample": Sample,
        "check": Check,
        "diagnose": Diagnose,
        "reproduce": Reproduce,
        "bench": Bench,
    }
    command = tyro.extras.subcommand_cli_from_dict(
        commands,
        prog="leapling",
        description="Learned MCMC kernels: fit, train, sample, check, diagnose; and the paper, reproduced.",
        args=arguments,
    )
    try:
        return command.run()
    except (ValueError, OSError) as error:
        if command.debug:
            raise
        log(f"leapling: {error}")
        return 2
    except KeyboardInterrupt:
        log("leapling: interrupted; what was written before is kept, and the same command goes on from it")
        return 2
