"""`python -m kernel_tuner.kernels`: the kernel commands with nothing but torch, numpy and nvcc."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernel_tuner.kernels import commands


def _numbers(text: str) -> tuple[int, ...]:
    """`1,8,32` or `1-4,8`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)


def _shapes(text: str) -> tuple[tuple[int, int], ...]:
    pairs = (part.split("x") for part in text.split(","))
    return tuple((int(rows), int(cols)) for rows, cols in pairs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kernel_tuner.kernels", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list")
    check = actions.add_parser("check")
    check.add_argument("--json", action="store_true")
    check.add_argument("--quick", action="store_true", help="small shapes only, for sanitizers")
    check.add_argument("--stress", type=int, default=36_000, help="launches; 0 for none")
    bench = actions.add_parser("bench")
    bench.add_argument("--what", choices=("shapes", "stacks", "sweep"), default="shapes")
    bench.add_argument("--tokens", type=_numbers, default=(1, 8, 16, 32))
    bench.add_argument("--densities", default="0.0002,0.01")
    bench.add_argument("--shapes", type=_shapes, default=None, help="such as 34816x5120,4096x4096")
    bench.add_argument("--repeats", type=int, default=9)
    bench.add_argument("--out", type=Path)
    packer = actions.add_parser("w12-pack")
    packer.add_argument("directory", type=Path)
    packer.add_argument("--out", type=Path)
    return parser


def _bench(arguments: argparse.Namespace) -> list[str]:
    if arguments.what == "stacks":
        return commands.bench_stacks(arguments.out, tokens=arguments.tokens)
    if arguments.what == "sweep":
        from kernel_tuner.kernels.bench import sweep
        from kernel_tuner.kernels.cases import PRODUCTION

        found = sweep(arguments.shapes or PRODUCTION, arguments.tokens, arguments.repeats)
        lines = [json.dumps(record) for record in found]
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
        return lines
    return commands.bench_kernels(
        arguments.out,
        tokens=arguments.tokens,
        densities=[float(value) for value in arguments.densities.split(",")],
        shapes=arguments.shapes,
        repeats=arguments.repeats,
    )


def _pack(arguments: argparse.Namespace) -> int:
    from native_engine.w12.errors import RoundTripError, W12FileError

    try:
        print("\n".join(commands.pack(arguments.directory, arguments.out)), flush=True)
    except RoundTripError as error:
        print(f"nothing was kept: {error}", file=sys.stderr)
        return 1
    except (W12FileError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def main(argv: list[str] | None = None) -> int:
    """Exit 0 when all is well, 1 when a check failed, 2 when a file is not what it should be."""
    arguments = _parser().parse_args(argv)
    if arguments.action == "check":
        failed = False
        for found in commands.check_kernels(quick=arguments.quick, stress=arguments.stress):
            failed |= found.status == "failed"
            print(found.text(arguments.json), flush=True)
        return int(failed)
    if arguments.action == "list":
        lines = commands.list_kernels()
    elif arguments.action == "bench":
        lines = _bench(arguments)
    else:
        return _pack(arguments)
    print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
