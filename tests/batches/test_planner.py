# SPDX-License-Identifier: Apache-2.0
"""Which samples form a unit, compared with the rules in plain Python."""

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from batches._plain_planner import PLANNERS, balance
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks._costs import BUDGETS, sample_costs
from torch_ndd.batches import Balanced, Batches, Bucketed, Packed, Preview
from torch_ndd.batches._units import Cursor, Remaining, Steps

whole_costs = st.lists(st.integers(0, 20), min_size=1, max_size=60)
decimal_costs = st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0, 1.1, 2.5, 19.9]), min_size=1, max_size=60)
# A loaded machine may take long for any example.
unhurried = settings(deadline=None)
limits = st.one_of(st.none(), st.integers(1, 5))


def make_batches(fit: str, budget: Any, **options: Any) -> Packed | Bucketed:
    return Bucketed(budget, **options) if fit == "padded" else Packed(budget, fit=fit, **options)


def tolist(preview: Preview) -> Any:
    return [unit.tolist() if isinstance(unit, np.ndarray) else [part.tolist() for part in unit] for unit in preview]


@pytest.mark.parametrize("fit", PLANNERS)
@unhurried
@given(costs=st.one_of(whole_costs, decimal_costs), budget=st.sampled_from([1, 3.3, 20, 37]), window=st.integers(1, 70), most=limits)
@example(costs=[0.1] * 12, budget=1, window=70, most=None)
def test_units_of_each_window_follow_the_rules(fit: str, costs: list[float], budget: float, window: int, most: int | None) -> None:
    preview = make_batches(fit, budget, window=window, order="first", max_samples=most, too_long="alone").preview(costs)
    expected = []
    for begin in range(0, len(costs), window):
        part = [(float(cost),) for cost in costs[begin : begin + window]]
        units = PLANNERS[fit](part, (budget,), most or float("inf"))
        expected += sorted(sorted(begin + i for i in unit) for unit in units)
    assert tolist(preview) == expected


@pytest.mark.parametrize("fit", ["first", "best"])
@unhurried
@given(costs=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=40), most=limits)
def test_several_costs_each_have_a_budget(fit: str, costs: list[tuple[int, int]], most: int | None) -> None:
    preview = make_batches(fit, [20, 12], order="first", max_samples=most).preview(costs)
    assert tolist(preview) == sorted(sorted(unit) for unit in PLANNERS[fit](costs, (20, 12), most or float("inf")))


def test_several_lengths_of_padded_batches() -> None:
    # By the larger share: 1, 0, 2, 3. With sample 0 beside sample 1 the second size would be 2 * 4; sample 2 fits beside sample 0, and fills both.
    assert tolist(Bucketed([10, 6], order="first").preview([[5, 1], [1, 4], [2, 3], [2, 2]])) == [[0, 2], [1], [3]]


@unhurried
@given(costs=whole_costs, samples=st.integers(1, 20), ranks=st.integers(1, 6), equal=st.booleans())
def test_balanced_steps_follow_the_rules(costs: list[int], samples: int, ranks: int, equal: bool) -> None:
    preview = Balanced(samples, equal=equal).preview(costs, ranks=ranks)
    for step, begin in enumerate(range(0, len(costs), samples)):
        part = costs[begin : begin + samples]
        expected = [[begin + i for i in rows] or [begin + len(part) - 1] for rows in balance(part, ranks, step, equal)]
        assert [rows.tolist() for rows in preview[step]] == expected
    assert len(preview) == -(-len(costs) // samples)


@pytest.mark.parametrize("order", ["first", "shuffled", "similar"])
@unhurried
@given(costs=whole_costs, window=st.integers(1, 70), seed=st.integers(-(2**63), 2**64 - 1), epoch=st.integers(0, 3))
def test_an_order_moves_only_whole_units(order: str, costs: list[int], window: int, seed: int, epoch: int) -> None:
    first = tolist(Packed(20, window=window, order="first").preview(costs))
    other = tolist(Packed(20, window=window, order=order, seed=seed).preview(costs, epoch=epoch))
    assert Counter(map(tuple, first)) == Counter(map(tuple, other))
    windows = [[unit[0] // window for unit in units] for units in (first, other)]
    assert windows[0] == windows[1] == sorted(windows[0])  # no unit leaves its window


def test_similar_units_are_neighbors() -> None:
    rng = np.random.default_rng(0)
    costs = rng.integers(1, 60, 2000)
    first = tolist(Packed(100, order="first").preview(costs))
    squares = {tuple(unit): int((costs[unit] ** 2).sum()) for unit in first}
    groups = np.array(sorted(squares, key=lambda unit: (squares[unit], unit[0])), object)
    assert len(first) > 500
    found = [tuple(unit) for unit in tolist(Packed(100).preview(costs))]
    whole_groups = len(first) // 64
    expected = [{*map(tuple, groups[64 * k : 64 * k + 64])} for k in range(whole_groups + 1)]
    delivered = [{*found[64 * k : 64 * k + 64]} for k in range(whole_groups + 1)]
    assert delivered[-1] == expected[-1]  # the incomplete one comes last
    assert sorted(map(sorted, delivered)) == sorted(map(sorted, expected))
    assert delivered != expected  # in random order
    assert found[:64] != sorted(found[:64], key=lambda unit: squares[unit])


def test_orders_depend_on_seed_epoch_and_window() -> None:
    costs = [5] * 120
    orders = [
        tolist(Packed(10, order="shuffled", seed=seed, window=60).preview(costs, epoch=epoch)) for seed, epoch in ((0, 0), (0, 0), (1, 0), (0, 1))
    ]
    assert orders[0] == orders[1]
    assert len({str(order) for order in orders}) == 3
    assert [[place - 60 for place in unit] for unit in orders[0][30:]] != orders[0][:30]


@pytest.mark.parametrize("batches", [Packed(10), Packed(10, fit="best"), Bucketed(10), Packed([10, 50], window=16)], ids=repr)
@unhurried
@given(data=st.data())
def test_units_are_within_budget_and_hold_each_sample_once(batches: Any, data: st.DataObject) -> None:
    kinds = len(batches.budgets)
    costs = np.array(data.draw(st.lists(st.tuples(*[st.integers(0, 10)] * kinds), min_size=1, max_size=50)))
    units = list(batches.preview(costs))
    assert sorted(place for unit in units for place in unit.tolist()) == list(range(len(costs)))
    for unit in units:
        used = costs[unit].max(0) * len(unit) if isinstance(batches, Bucketed) else costs[unit].sum(0)
        assert (used <= batches.budgets).all()


@unhurried
@given(costs=st.lists(st.integers(0, 10), min_size=1, max_size=80), ranks=st.integers(1, 7), end=st.sampled_from(["share", "drop"]))
def test_steps_have_a_unit_for_each_rank(costs: list[int], ranks: int, end: str) -> None:
    preview = Packed(10, window=20, end=end).preview(costs, ranks=ranks)
    units = tolist(preview)
    whole_steps, left = divmod(len(units), ranks)
    for t in range(whole_steps):
        assert [part.tolist() for part in preview.steps[t]] == units[t * ranks : (t + 1) * ranks]
    if end == "drop" or not left:
        assert len(preview.steps) == whole_steps
        return
    last = [part.tolist() for part in preview.steps[-1]]
    wanted = [place for unit in units[whole_steps * ranks :] for place in unit]
    assert len(last) == ranks
    assert all(last)
    assert {place for part in last for place in part} == set(wanted)
    if len(wanted) >= ranks:
        assert sorted(place for part in last for place in part) == sorted(wanted)  # split without repetition
    else:
        assert all(len(part) == 1 for part in last)


def test_the_costliest_unit_is_split() -> None:
    # Units of 10, 9 and 1: for four ranks the first becomes 4 + 1 and 3 + 2.
    preview = Packed(10, order="first", max_samples=4).preview([4, 3, 2, 1, 9, 1], ranks=4)
    assert tolist(preview) == [[0, 1, 2, 3], [4, 5]]
    assert [part.tolist() for part in preview.steps[0]] == [[0, 3], [1, 2], [4], [5]]


def test_too_long_samples() -> None:
    costs = [3, 11, 4, 10, 12]
    with pytest.raises(ValueError, match=r"batches.Packed: sample 1 costs 11, more than the budget of 10; .*too_long"):
        Packed(10).preview(costs)
    assert tolist(Packed(10, too_long="skip", order="first").preview(costs)) == [[0, 2], [3]]
    for batches in (Packed(10, too_long="alone", order="first"), Packed(10, fit="best", too_long="alone", order="first")):
        assert tolist(batches.preview(costs)) == [[0, 2], [1], [3], [4]]
    assert tolist(Bucketed(10, too_long="alone", order="first").preview(costs)) == [[0, 2], [1], [3], [4]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Packed(0), "Packed: budget must be finite and at least 1, got 0"),
        (lambda: Packed([8, float("nan")]), "budget must be finite"),
        (lambda: Packed([]), "budget must have 1 to 64 numbers"),
        (lambda: Packed(8, window=0), "Packed: window must be from 1"),
        (lambda: Packed(8, max_samples=0), "max_samples must be from 1"),
        (lambda: Packed(8, fit="third"), "fit must be one of first, best, got 'third'"),
        (lambda: Bucketed(8, order="random"), "Bucketed: order must be"),
        (lambda: Packed(8, too_long="drop"), "too_long must be"),
        (lambda: Packed(8, end="keep"), "end must be one of share, drop"),
        (lambda: Balanced(0), "Balanced: samples must be from 1"),
        (lambda: Balanced(8, equal="no"), "Balanced: equal must be true or false, got 'no'"),
        (lambda: Packed(8).preview([1, -2]), "the cost of sample 1 is -2: it must be finite and not negative"),
        (lambda: Packed(8).preview([1, float("nan")]), "the cost of sample 1 is nan: it is missing"),
        (lambda: Packed(8).preview([1, float("inf")]), "the cost of sample 1 is inf"),
        (lambda: Packed([8, 8]).preview([1, 2]), "each sample has 1 costs, but 2 are needed"),
        (lambda: Packed(8).preview(np.zeros((2, 2, 2))), r"must have the shape \(N,\) or \(N, k\)"),
        (lambda: Packed(8).preview("pixels"), "costs must be an array of numbers, got 'pixels'"),
        (lambda: Packed(8).preview([1], ranks=0), "ranks must be from 1"),
    ],
)
def test_bad_arguments(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("make", [lambda: Packed("8"), lambda: Packed(True), lambda: Packed(8).preview(["a"])])
def test_arguments_of_another_type(make: Any) -> None:
    with pytest.raises(TypeError, match=r"batches.Packed: (budget|costs) must be"):
        make()


@pytest.mark.parametrize("kind", [Packed, Bucketed, Balanced])
def test_unknown_arguments_are_refused_in_the_name_of_the_class(kind: type[Batches]) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.__init__\(\) got an unexpected keyword argument 'size'"):
        kind(8, size=2)  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("kind", BUDGETS)
def test_figures_of_real_distributions(kind: str) -> None:
    """The windows are those of the defaults; a quarter of the samples is enough for the means."""
    costs = sample_costs(kind, 16384)
    for fit in ("first", "best"):
        figures = Packed(BUDGETS[kind], fit=fit).preview(costs, ranks=8).figures
        assert figures.fill is not None
        assert figures.fill >= 0.985
        assert figures.load <= 1.01
        assert figures.samples == len(costs)
    padding = Bucketed(BUDGETS[kind]).preview(costs, ranks=8).figures.padding
    assert padding is not None
    assert padding < 0.01
    assert Balanced(8 * 32).preview(costs, ranks=8).figures.load <= 1.002


def test_ranks_have_similar_attention() -> None:
    costs = sample_costs("vlm")
    similar, shuffled = (Packed(BUDGETS["vlm"], order=order).preview(costs, ranks=8).figures.attention for order in ("similar", "shuffled"))
    assert similar <= 1.15 < shuffled


# Simulated apart from this package, by the rules of the default: how full units are, load and attention of 8 ranks, attention of 64 ranks.
FIGURES = {
    "vlm": (0.994, 1.006, 1.08, 1.33),
    "text": (0.997, 1.003, 1.39, 2.60),
    "images": (0.995, 1.005, 1.04, 1.12),
    "speech": (0.996, 1.005, 1.05, 1.11),
}


@pytest.mark.parametrize("kind", BUDGETS)
def test_figures_are_those_of_a_simulation(kind: str) -> None:
    costs = sample_costs(kind)
    batches = Packed(BUDGETS[kind])
    fill, load, attention, of_many = FIGURES[kind]
    # A single rank takes all units whole: others split some at the end of the epoch.
    assert batches.preview(costs).figures.fill == pytest.approx(fill, abs=0.002)
    few, many = (batches.preview(costs, ranks=ranks).figures for ranks in (8, 64))
    assert few.load == pytest.approx(load, abs=0.002)
    assert few.attention == pytest.approx(attention, abs=0.01)
    # Few steps remain for 64 ranks, and the tail of texts is heavy.
    assert many.attention == pytest.approx(of_many, rel=0.06)


def test_a_planned_window_takes_few_bytes() -> None:
    costs = sample_costs("vlm", 8192)[:, None].astype(float)
    steps = Steps(Packed(BUDGETS["vlm"]), Remaining(8192), 0, Cursor(), lambda places: (places, costs[places]), 8)
    tracemalloc.start()
    next(steps)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept <= 40 * 4096  # at most 64 for each sample of the window


def test_similar_units_show_no_trend() -> None:
    costs = sample_costs("vlm")
    preview = Packed(BUDGETS["vlm"]).preview(costs)
    squares = [float((costs[unit] ** 2).sum()) for unit in preview]
    assert abs(np.corrcoef(squares, np.arange(len(squares)))[0, 1]) < 0.05


def test_figures_are_those_of_the_units() -> None:
    costs = np.random.default_rng(1).integers(1, 30, 500)
    preview = Packed(60, window=100, end="drop").preview(costs, ranks=3)
    loads = np.array([[costs[part].sum() for part in step] for step in preview.steps], float)
    squares = np.array([[(costs[part] ** 2).sum() for part in step] for step in preview.steps], float)
    figures = preview.figures
    assert figures.load == pytest.approx((loads.max(1) / loads.mean(1)).mean())
    assert figures.attention == pytest.approx(squares.max(1).sum() / squares.mean(1).sum())
    assert figures.fill == pytest.approx(loads.sum() / (60 * loads.size))
    assert (figures.steps, figures.units) == (len(preview.steps), loads.size)
    padded = Bucketed(60, window=100, end="drop").preview(costs, ranks=3)
    sizes = [costs[part].max() * len(part) for step in padded.steps for part in step]
    assert padded.figures.padding == pytest.approx(1 - sum(costs[part].sum() for step in padded.steps for part in step) / sum(sizes))
    assert padded.figures.fill == pytest.approx(sum(sizes) / (60 * len(sizes)))
