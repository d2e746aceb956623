// Reinforcement learning: a cart learns to balance a pole by pushing left or right. There are no labels. The
// loss uses the actions taken and the rewards that followed.
//
// The method is REINFORCE: play episodes, then raise the probability of actions that were followed by more
// reward than average. The environment is a few equations on the host; the policy is a network on arrays.
//
// Sources: A. Barto, R. Sutton, C. Anderson, "Neuronlike adaptive elements that can solve difficult learning
// control problems", 1983 (the cart and the pole, here without friction); R. Williams, "Simple statistical
// gradient-following algorithms for connectionist reinforcement learning", 1992.
#include <mx/mx.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <string>
#include <vector>

#include "examples/support/command_line.h"
#include "examples/support/writable.h"

namespace {

using namespace mx;

/// Units: metres, seconds, kilograms, newtons, radians; the angle is 0 upright.
struct CartPole {
  static constexpr double kGravity = 9.8, kCart = 1.0, kPole = 0.1, kHalfLength = 0.5, kForce = 10,
                          kStep = 0.02;
  static constexpr double kMaxPosition = 2.4, kMaxAngle = 12 * std::numbers::pi / 180;

  double position = 0, velocity = 0, angle = 0, spin = 0;

  /// Pushes left (0) or right (1) for one step.
  void push(int64_t action) {
    const double force = action == 1 ? kForce : -kForce;
    const double mass = kCart + kPole, moment = kPole * kHalfLength;
    const double s = std::sin(angle), c = std::cos(angle);
    const double common = (force + moment * spin * spin * s) / mass;
    const double angular = (kGravity * s - c * common) / (kHalfLength * (4.0 / 3 - kPole * c * c / mass));
    const double linear = common - moment * angular * c / mass;
    position += kStep * velocity;
    velocity += kStep * linear;
    angle += kStep * spin;
    spin += kStep * angular;
  }
  bool failed() const { return std::abs(position) > kMaxPosition || std::abs(angle) > kMaxAngle; }
};

constexpr int64_t kLongest = 200;  // maximum steps of an episode, which is also the maximum reward
constexpr int64_t kTogether = 20;  // episodes played in parallel
constexpr int64_t kLook = 100;     // episodes over which the mean length is taken
constexpr double kSolved = 195;
constexpr double kDiscount = 0.99;

struct Policy : nn::Module {
  nn::Linear fc1{4, 32}, fc2{32, 2};
  Policy() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  NDArray forward(const NDArray& states) { return fc2(tanh(fc1(states))); }
};

struct Step {
  CartPole before;
  int64_t action;
};
using Episode = std::vector<Step>;

/// The observations of n environments, (n, 4), scaled so that the limits are near 1.
NDArray observe(const std::vector<CartPole>& worlds) {
  std::vector<float> numbers;
  for (const CartPole& w : worlds)
    for (const double x : {w.position / 2.4, w.velocity / 2, w.angle * 5, w.spin / 2})
      numbers.push_back(static_cast<float>(x));
  return from_data(numbers.data(), {static_cast<int64_t>(worlds.size()), 4});
}

/// Plays episodes that start near the middle. Actions are sampled from the policy, or the most probable one
/// is taken.
std::vector<Episode> play(const Policy& policy, bool explore) {
  const NoGrad pause;
  const auto start = uniform(-0.05, 0.05, {kTogether, 4}, f64).to_vector<double>();
  std::vector<CartPole> worlds;
  for (size_t i = 0; i < start.size(); i += 4)
    worlds.push_back({start[i], start[i + 1], start[i + 2], start[i + 3]});
  std::vector<Episode> episodes(kTogether);
  std::vector<bool> over(kTogether, false);
  for (int64_t t = 0; t < kLongest && std::count(over.begin(), over.end(), false) > 0; ++t) {
    const NDArray scores = policy(observe(worlds));
    const auto actions =
        (explore ? categorical(scores, 1, /*logits=*/true) : argmax(scores, 1)).to_vector<int64_t>();
    for (size_t i = 0; i < worlds.size(); ++i) {
      if (over[i]) continue;
      episodes[i].push_back({worlds[i], actions[i]});
      worlds[i].push(actions[i]);
      over[i] = worlds[i].failed();
    }
  }
  return episodes;
}

/// The advantage of each step: its discounted return minus the mean return of all episodes at the same step.
std::vector<std::vector<double>> advantages(const std::vector<Episode>& episodes) {
  const auto to_come = [](const Episode& e, size_t t) {
    return t < e.size() ? (1 - std::pow(kDiscount, e.size() - t)) / (1 - kDiscount) : 0;
  };
  std::vector<std::vector<double>> result(episodes.size());
  for (size_t t = 0; t < kLongest; ++t) {
    double usual = 0;
    for (const Episode& e : episodes) usual += to_come(e, t) / static_cast<double>(episodes.size());
    for (size_t i = 0; i < episodes.size(); ++i)
      if (t < episodes[i].size()) result[i].push_back(to_come(episodes[i], t) - usual);
  }
  return result;
}

void learn(Policy& policy, optim::Optimizer& optimizer, const std::vector<Episode>& episodes) {
  const auto better = advantages(episodes);
  std::vector<CartPole> worlds;
  std::vector<int64_t> actions;
  std::vector<float> weights;
  for (size_t i = 0; i < episodes.size(); ++i) {
    for (size_t t = 0; t < episodes[i].size(); ++t) {
      worlds.push_back(episodes[i][t].before);
      actions.push_back(episodes[i][t].action);
      weights.push_back(static_cast<float>(better[i][t]));
    }
  }
  const NDArray surprise = cross_entropy(policy(observe(worlds)), array(actions), {.reduction = "none"});
  const NDArray loss = mean(surprise * array(weights));
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
}

double mean_length(const std::vector<Episode>& episodes, int64_t last) {
  double sum = 0;
  for (auto e = episodes.end() - last; e != episodes.end(); ++e) sum += static_cast<double>(e->size());
  return sum / static_cast<double>(last);
}

void write(const std::string& path, const std::vector<Episode>& episodes) {
  std::ofstream out(path);
  out.precision(17);
  out << "episode action position velocity angle spin\n";
  for (size_t i = 0; i < episodes.size(); ++i)
    for (const auto& [w, action] : episodes[i])
      out << i << ' ' << action << ' ' << w.position << ' ' << w.velocity << ' ' << w.angle << ' ' << w.spin
          << '\n';
  if (!out.flush()) throw FileError("write", path, errno, "");
}

/// Keeps the mean length of the last episodes and prints it from time to time.
double report(const std::vector<Episode>& all) {
  const double mean = mean_length(all, kLook);
  if (all.size() % kLook == 0)
    std::printf("%6zu episodes: mean length of the last %lld: %.2f\n", all.size(),
                static_cast<long long>(kLook), mean);
  return mean;
}

void append(std::vector<Episode>& all, const std::vector<Episode>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void run(int64_t most, int64_t seed, const std::string& trace) {
  // A trace that is written to a pipe or a device makes no new file.
  if (!trace.empty() && !std::filesystem::is_other(trace)) examples::require_writable(trace);
  manual_seed(static_cast<uint64_t>(seed));
  Policy policy;
  optim::Adam optimizer(policy.parameters(), {.lr = 0.02});
  std::vector<Episode> all;
  bool solved = false;
  while (!solved && static_cast<int64_t>(all.size()) < most) {
    const std::vector<Episode> episodes = play(policy, /*explore=*/true);
    append(all, episodes);
    if (static_cast<int64_t>(all.size()) >= kLook) solved = report(all) >= kSolved;
    if (!solved) learn(policy, optimizer, episodes);
  }
  std::printf("%s after %zu episodes\n", solved ? "solved" : "not solved", all.size());
  if (!trace.empty()) write(trace, all);

  std::vector<Episode> fresh;
  while (static_cast<int64_t>(fresh.size()) < kLook) append(fresh, play(policy, /*explore=*/false));
  std::printf("mean length of %lld new episodes: %.2f of %lld\n", static_cast<long long>(kLook),
              mean_length(fresh, kLook), static_cast<long long>(kLongest));
}

}  // namespace

int main(int argc, char** argv) {
  int64_t episodes = 1000, seed = 1;
  std::string trace;
  mx::examples::CommandLine line("A cart learns to balance a pole");
  line.option("--episodes", &episodes, "at most that many to learn from; they come by twenties").at_least(0);
  line.option("--seed", &seed, "of everything that is random").at_least(0);
  line.option("--trace", &trace, "write every step of learning to FILE").called("FILE");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("cart_pole", [&] { run(episodes, seed, trace); });
}
