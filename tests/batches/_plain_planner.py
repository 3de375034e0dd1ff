# SPDX-License-Identifier: Apache-2.0
"""The rules of batches by cost, in plain Python: slow, and written without a look at the planner."""

import math
from collections.abc import Sequence

Cost = tuple[float, ...]


def fits(load: Cost, cost: Cost, budget: Cost) -> bool:
    return all(have + more <= most for have, more, most in zip(load, cost, budget, strict=True))


def share(cost: Cost, budget: Cost) -> float:
    return cost[0] if len(cost) == 1 else max(value / most for value, most in zip(cost, budget, strict=True))


def descending(costs: Sequence[Cost], budget: Cost) -> list[int]:
    return sorted(range(len(costs)), key=lambda i: (-share(costs[i], budget), i))


def add(load: Cost, cost: Cost) -> Cost:
    return tuple(have + more for have, more in zip(load, cost, strict=True))


def first_fit(costs: Sequence[Cost], budget: Cost, most: float) -> list[list[int]]:
    units: list[list[int]] = []
    loads: list[Cost] = []
    for i, cost in enumerate(costs):
        for unit, load in enumerate(loads):
            if len(units[unit]) < most and fits(load, cost, budget):
                break
        else:
            unit = len(units)
            units.append([])
            loads.append((0.0,) * len(cost))
        units[unit].append(i)
        loads[unit] = add(loads[unit], cost)
    return units


def best_fit(costs: Sequence[Cost], budget: Cost, most: float) -> list[list[int]]:
    units: list[list[int]] = []
    loads: list[Cost] = []
    for i in descending(costs, budget):
        room = [k for k, load in enumerate(loads) if len(units[k]) < most and fits(load, costs[i], budget)]
        if room:
            unit = max(room, key=lambda k: (share(loads[k], budget), -k))
        else:
            unit = len(units)
            units.append([])
            loads.append((0.0,) * len(costs[i]))
        units[unit].append(i)
        loads[unit] = add(loads[unit], costs[i])
    return units


def buckets(costs: Sequence[Cost], budget: Cost, most: float) -> list[list[int]]:
    """Of a single cost."""
    rest, units = descending(costs, budget), []
    while rest:
        longest = costs[rest[0]][0]
        count = int(min(most, max(1, budget[0] // longest if longest else math.inf))) if longest or most < math.inf else len(rest)
        units.append(rest[:count])
        rest = rest[count:]
    return units


def balance(costs: Sequence[float], ranks: int, step: int, equal: bool) -> list[list[int]]:
    most = -(-len(costs) // ranks) if equal else len(costs)
    parts: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for i in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        part = min((k for k in range(ranks) if len(parts[k]) < most), key=lambda k: (loads[k], k))
        parts[part].append(i)
        loads[part] += costs[i]
    turned: list[list[int]] = [[] for _ in range(ranks)]
    for j, part in enumerate(parts):
        turned[(j + step) % ranks] = sorted(part)
    return turned


PLANNERS = {"first": first_fit, "best": best_fit, "padded": buckets}
