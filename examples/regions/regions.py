"""Two kinds of work, marked as regions, and their steps counted: `PYTHONPATH=../../interface ampere run python3 regions.py`."""

import math

import ampere


def grow(x, rounds):
    for round in range(rounds):
        x = math.sqrt(x + round)
    return x


@ampere.region("solve")
def solve(x):
    return x + grow(x, 30000)


x = 1.0
ampere.mark("start")
for step in range(20):
    with ampere.region("assemble"):
        x += grow(x, 10000)
    x = solve(x)
    ampere.work("steps", 1)
print(f"{x:.3f}")
