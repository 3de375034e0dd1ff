// SPDX-License-Identifier: Apache-2.0
// Plans batches by the costs of samples, for torch_ndd/batches: cuts a window of samples into units of a bounded cost, or divides samples among ranks.
// Native because every rank plans every window: Python plans 200,000 samples a second, this some millions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <queue>
#include <set>
#include <vector>

#include "ndd/python_interface.h"
#include "readers/shuffle.h"

namespace ndd {
namespace {

// first: into the first unit with room; best: into the fullest one; padded: a unit costs its number of samples times its largest sample.
NDD_ENUM("batches.Fit", Fit, int64_t, first, best, padded);
NDD_ENUM("batches.Order", UnitOrder, int64_t, first, shuffled, similar);

constexpr double kFull = std::numeric_limits<double>::infinity();  // the load of a unit that takes no more samples
constexpr int64_t kSimilar = 64;  // units of a group, which have like squares of costs
constexpr uint32_t kStream = 0xBA7C4;  // apart from the streams that shuffle samples

// The costs of a window: `kinds` numbers a sample, each with a budget.
struct Costs {
  const double* values;
  int64_t samples, kinds;
  const double* budgets;

  const double* of(int64_t sample) const { return values + sample * kinds; }

  // What samples are sorted by: the cost, or the largest share of a budget.
  double key(int64_t sample) const { return kinds == 1 ? values[sample] : share(of(sample)); }

  double share(const double* costs) const {
    double largest = 0;
    for (int64_t k = 0; k < kinds; ++k) largest = std::max(largest, costs[k] / budgets[k]);
    return largest;
  }

  // Written so that NaN does not fit anywhere.
  bool fits(const double* load, const double* cost) const {
    for (int64_t k = 0; k < kinds; ++k)
      if (!(load[k] + cost[k] <= budgets[k])) return false;
    return true;
  }

  // The samples from the largest key to the smallest; of equal ones the earlier first.
  std::vector<int64_t> descending() const {
    std::vector<double> keys(samples);
    for (int64_t i = 0; i < samples; ++i) keys[i] = key(i);
    std::vector<int64_t> order(samples);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] > keys[b]; });
    return order;
  }
};

// The loads of units by number, with the smallest of each pair, pair of pairs and so on, to find the first unit with room in logarithmic time.
class LoadTree {
 public:
  explicit LoadTree(const Costs& costs) : costs_(costs) {
    while (leaves_ < costs.samples) leaves_ *= 2;
    smallest_.assign(2 * leaves_ * costs.kinds, 0);
  }

  // The first unit with room, possibly an empty one; -1 if even an empty one has none.
  int64_t find(const double* cost) const { return find(1, cost); }

  void add(int64_t unit, const double* cost, bool full) {
    const int64_t kinds = costs_.kinds;
    int64_t node = leaves_ + unit;
    for (int64_t k = 0; k < kinds; ++k) smallest_[node * kinds + k] = full ? kFull : smallest_[node * kinds + k] + cost[k];
    while (node /= 2)
      for (int64_t k = 0; k < kinds; ++k)
        smallest_[node * kinds + k] = std::min(smallest_[2 * node * kinds + k], smallest_[(2 * node + 1) * kinds + k]);
  }

 private:
  int64_t find(int64_t node, const double* cost) const {
    if (!costs_.fits(&smallest_[node * costs_.kinds], cost)) return -1;
    if (node >= leaves_) return node - leaves_;
    const int64_t left = find(2 * node, cost);  // with several kinds the smallest loads may be those of different units
    return left >= 0 ? left : find(2 * node + 1, cost);
  }

  const Costs& costs_;
  int64_t leaves_ = 1;
  std::vector<double> smallest_;  // of all units below a node; the root is node 1
};

// Each function sets the unit of each sample and returns the number of units.
// First fit: samples in their order, each into the oldest unit with room.
int64_t fit_first(const Costs& costs, int64_t max_samples, int64_t* unit_of) {
  LoadTree loads(costs);
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < costs.samples; ++i) {
    // Units are opened in order, so the first empty leaf of the tree is the next unit.
    int64_t unit = loads.find(costs.of(i));
    if (unit < 0) unit = static_cast<int64_t>(counts.size());  // over the budget: alone
    if (unit == static_cast<int64_t>(counts.size())) counts.push_back(0);
    loads.add(unit, costs.of(i), ++counts[unit] == max_samples);
    unit_of[i] = unit;
  }
  return static_cast<int64_t>(counts.size());
}

struct OpenUnit {
  double load;  // its largest share of a budget, or with a single kind the load itself
  int64_t unit;

  // The last one of those with room is the fullest, of equal ones the oldest.
  bool operator<(const OpenUnit& other) const { return load != other.load ? load < other.load : unit > other.unit; }
};

// Best fit decreasing: the costliest samples first, each into the fullest unit with room.
int64_t fit_best(const Costs& costs, int64_t max_samples, int64_t* unit_of) {
  const int64_t kinds = costs.kinds;
  // Units that take more samples, sorted by load; full ones leave the set.
  std::set<OpenUnit> open;
  std::vector<double> loads;
  std::vector<int64_t> counts;
  for (const int64_t i : costs.descending()) {
    const double* cost = costs.of(i);
    auto found = open.end();
    if (kinds == 1) {  // all units below a load have room: bisect
      // -1 sorts behind all units of equal load, which have room.
      found = open.upper_bound({costs.budgets[0] - cost[0], -1});
      // The difference is rounded: step over the few units on its wrong side.
      while (found != open.end() && costs.fits(&found->load, cost)) ++found;
      while (found != open.begin() && !costs.fits(&std::prev(found)->load, cost)) --found;
      found = found == open.begin() ? open.end() : std::prev(found);
    } else {
      // Several kinds: the share does not decide whether a sample fits, so the fullest that has room is searched for.
      for (auto unit = open.rbegin(); unit != open.rend(); ++unit)
        if (costs.fits(&loads[unit->unit * kinds], cost)) {
          found = std::prev(unit.base());
          break;
        }
    }
    int64_t unit = static_cast<int64_t>(counts.size());
    if (found != open.end()) {
      unit = found->unit;
      open.erase(found);
    } else {
      counts.push_back(0);
      loads.resize(loads.size() + kinds, 0);
    }
    for (int64_t k = 0; k < kinds; ++k) loads[unit * kinds + k] += cost[k];
    if (++counts[unit] < max_samples) open.insert({kinds == 1 ? loads[unit] : costs.share(&loads[unit * kinds]), unit});
    unit_of[i] = unit;
  }
  return static_cast<int64_t>(counts.size());
}

// The number of times that b fits into a, as Python's a // b: the rounded quotient may be one too large.
double count_fitting(double a, double b) {
  if (b == 0) return kFull;
  const double quotient = (a - std::fmod(a, b)) / b, whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

// Sorted by cost, neighbors need the least padding; a unit is closed when the next sample would exceed a budget.
int64_t fit_padded(const Costs& costs, int64_t max_samples, int64_t* unit_of) {
  std::vector<double> longest(costs.kinds, 0);
  int64_t units = 0, count = 0;
  for (const int64_t i : costs.descending()) {
    // How many samples of the longest one's cost fit.
    double most = static_cast<double>(max_samples);
    for (int64_t k = 0; k < costs.kinds; ++k) most = std::min(most, count_fitting(costs.budgets[k], std::max(longest[k], costs.of(i)[k])));
    if (!units || count + 1 > most) {
      ++units;
      count = 0;
      std::fill(longest.begin(), longest.end(), 0);
    }
    for (int64_t k = 0; k < costs.kinds; ++k) longest[k] = std::max(longest[k], costs.of(i)[k]);
    ++count;
    unit_of[i] = units - 1;
  }
  return units;
}

// Writes the samples of each unit, in their order, one unit after the other in the given order.
void write_units(const int64_t* unit_of, int64_t samples, const std::vector<int64_t>& order, int64_t* members, int64_t* ends) {
  std::vector<int64_t> counts(order.size(), 0), at(order.size());
  for (int64_t i = 0; i < samples; ++i) ++counts[unit_of[i]];
  int64_t end = 0;
  for (size_t place = 0; place < order.size(); ++place) {
    at[order[place]] = end;
    ends[place] = end += counts[order[place]];
  }
  for (int64_t i = 0; i < samples; ++i) members[at[unit_of[i]]++] = i;
}

// The order in which units occur in the window: independent of the numbers that a fit gave them.
std::vector<int64_t> by_first_sample(const int64_t* unit_of, int64_t samples, int64_t units) {
  std::vector<int64_t> order;
  std::vector<bool> seen(units, false);
  for (int64_t i = 0; i < samples; ++i)
    if (!seen[unit_of[i]]) {
      seen[unit_of[i]] = true;
      order.push_back(unit_of[i]);
    }
  return order;
}

// Units of like squares become neighbors, because the time of attention grows with the square of a sequence: then the ranks of a step finish together.
// The groups are in random order, so a loss shows no trend over the window.
void order_similar(std::vector<int64_t>& order, const std::vector<double>& squares, Philox& random) {
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return squares[a] < squares[b]; });
  const int64_t units = static_cast<int64_t>(order.size()), groups = units / kSimilar;
  std::vector<int64_t> turns(groups);
  std::iota(turns.begin(), turns.end(), 0);
  shuffle_short(turns.data(), groups, random);
  std::vector<int64_t> sorted = order;
  for (int64_t group = 0; group < groups; ++group) {
    int64_t* place = order.data() + group * kSimilar;
    std::copy_n(sorted.data() + turns[group] * kSimilar, kSimilar, place);
    shuffle_short(place, kSimilar, random);
  }
  shuffle_short(order.data() + groups * kSimilar, units - groups * kSimilar, random);
}

int64_t plan_window(const Costs& costs, int64_t max_samples, Fit fit, UnitOrder unit_order, Philox& random, int64_t* members, int64_t* ends) {
  std::vector<int64_t> unit_of(costs.samples);
  const auto assign = fit == Fit::first ? fit_first : fit == Fit::best ? fit_best : fit_padded;
  const int64_t units = assign(costs, max_samples, unit_of.data());
  std::vector<int64_t> order = by_first_sample(unit_of.data(), costs.samples, units);
  if (unit_order == UnitOrder::shuffled) shuffle_short(order.data(), units, random);
  if (unit_order == UnitOrder::similar) {
    std::vector<double> squares(units, 0);
    for (int64_t i = 0; i < costs.samples; ++i) squares[unit_of[i]] += costs.of(i)[0] * costs.of(i)[0];
    order_similar(order, squares, random);
  }
  write_units(unit_of.data(), costs.samples, order, members, ends);
  return units;
}

// Longest processing time first: the costliest sample to the rank with the least load.
void balance(const Costs& costs, int64_t ranks, int64_t rotation, bool equal, int64_t* members, int64_t* ends) {
  using Load = std::pair<double, int64_t>;  // and the part, so of equal loads the lowest comes first
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int64_t part = 0; part < ranks; ++part) loads.push({0, part});
  // No part has more than an equal share, rounded up.
  const int64_t most = equal ? (costs.samples + ranks - 1) / ranks : costs.samples;
  std::vector<int64_t> part_of(costs.samples), counts(ranks, 0), order(ranks);
  for (const int64_t i : costs.descending()) {
    const auto [load, part] = loads.top();
    loads.pop();
    if (++counts[part] < most) loads.push({load + costs.key(i), part});
    part_of[i] = part;
  }
  // Part 0 has the costliest sample: the rotation gives it to another rank.
  for (int64_t part = 0; part < ranks; ++part) order[(part + rotation) % ranks] = part;
  write_units(part_of.data(), costs.samples, order, members, ends);
}

}  // namespace
}  // namespace ndd

// Cuts samples into units. Sets `members` (samples) to the samples of one unit after the other and `ends` (at most as many as samples) to the end of
// each unit in it; returns the number of units, -1 without memory.
NDD_EXPORT(release, int64_t, ndd_plan_window,
           (const double* costs, int64_t samples, int64_t kinds, const double* budgets, int64_t max_samples, int64_t fit, int64_t order,
            uint64_t seed, uint64_t epoch, uint64_t window, int64_t* members, int64_t* ends)) {
  ndd::Philox random(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(epoch), static_cast<uint32_t>(window),
                     ndd::kStream);
  try {
    return ndd::plan_window({costs, samples, kinds, budgets}, max_samples, static_cast<ndd::Fit>(fit), static_cast<ndd::UnitOrder>(order), random,
                            members, ends);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

// Divides samples among ranks; `ends` has one number a rank. Returns the number of ranks, -1 without memory.
NDD_EXPORT(release, int64_t, ndd_balance,
           (const double* costs, int64_t samples, int64_t kinds, const double* budgets, int64_t ranks, int64_t rotation, bool equal, int64_t* members,
            int64_t* ends)) {
  try {
    ndd::balance({costs, samples, kinds, budgets}, ranks, rotation, equal, members, ends);
    return ranks;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
