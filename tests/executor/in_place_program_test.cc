// Compares random programs of views and in-place changes with their meaning. The meaning is the same program
// written with pure functions only: a memory is a flat array, a view is a list of positions in it, and every
// change makes a new array. Values and gradients of both must agree for every view that was ever taken.
#include <gtest/gtest.h>

#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

constexpr int64_t kRows = 3, kColumns = 4, kSize = kRows * kColumns;

// The meaning of the program. Reads and writes are products with matrices of zeros and ones, so the reference
// uses none of the features under test.
struct Memory {
  NDArray flat;  // (kSize,)
};

struct Meant {
  size_t memory;
  std::vector<int64_t> places;  // positions in the memory, row-major

  NDArray matrix() const {
    std::vector<double> ones_at(places.size() * kSize, 0);
    for (size_t i = 0; i < places.size(); ++i) ones_at[i * kSize + static_cast<size_t>(places[i])] = 1;
    return array(ones_at).reshape({static_cast<int64_t>(places.size()), kSize});
  }
  NDArray read(const std::vector<Memory>& memories) const {
    return matmul(matrix(), memories[memory].flat.reshape({kSize, 1})).reshape({-1});
  }
  void write(std::vector<Memory>& memories, const NDArray& values) const {
    std::vector<double> keep(kSize, 1);
    for (int64_t place : places) keep[static_cast<size_t>(place)] = 0;
    const NDArray there = matmul(matrix().transpose().clone(), values.reshape({-1, 1})).reshape({-1});
    memories[memory].flat = memories[memory].flat * array(keep) + there;
  }
};

// An array of the program and its meaning.
struct Named {
  NDArray array;
  Meant meant;
};

class Program {
 public:
  Program(unsigned seed, NDArray x, NDArray meant_x)
      : random_(seed), x_(std::move(x)), meant_x_(std::move(meant_x)) {}

  void run(int steps) {
    make();
    for (int i = 0; i < steps; ++i) step();
  }
  // Returns a weighted sum over every element of every array; each element has its own weight.
  NDArray result() const {
    NDArray total = sum(x_) * 0.0;
    for (const Named& n : named_) total = total + sum(n.array.flatten() * weights(n.array.numel()));
    return total;
  }
  NDArray meant_result() const {
    NDArray total = sum(meant_x_) * 0.0;
    for (const Named& n : named_) total = total + sum(n.meant.read(memories_) * weights(n.array.numel()));
    return total;
  }
  const std::string& text() const { return text_; }

 private:
  static NDArray weights(int64_t n) { return arange(1, static_cast<double>(n) + 1, 1, f64); }
  size_t choose(size_t n) { return random_() % n; }
  Named& any() { return named_[choose(named_.size())]; }
  void note(const std::string& line) { text_ += line + "\n"; }

  // Creates a new memory, either recorded or plain.
  void make() {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < kSize; ++i) places.push_back(i);
    if (choose(3) == 0) {
      const NDArray plain = test::some({kRows, kColumns}, random_());
      memories_.push_back({plain.flatten().clone()});
      named_.push_back({plain, {memories_.size() - 1, places}});
      return note("make a plain array " + std::to_string(named_.size() - 1));
    }
    memories_.push_back({meant_x_.reshape({-1}) * 2.0});
    named_.push_back({x_ * 2.0, {memories_.size() - 1, places}});
    note("make a recorded array " + std::to_string(named_.size() - 1));
  }

  // Takes a view of an array. The positions are found by taking the same view of an array of indices.
  void view() {
    const Named& from = any();
    NDArray places = array(from.meant.places).reshape(from.array.shape());
    NDArray seen = from.array;
    const size_t kind = choose(6);
    const int rank = seen.rank();
    const auto through = [&](const auto& f) {
      seen = f(seen);
      places = f(places);
    };
    if (kind == 0 && rank > 0 && seen.shape()[0] > 0) {
      const int64_t i = static_cast<int64_t>(choose(static_cast<size_t>(seen.shape()[0])));
      through([&](const NDArray& a) { return a.select(0, i); });
    } else if (kind == 1) {
      through([](const NDArray& a) { return a.transpose(); });
    } else if (kind == 2 && rank > 0) {
      const int64_t step = choose(2) == 0 ? 1 : -1;
      through([&](const NDArray& a) { return a.slice(-1, Slice{{}, {}, step}); });
    } else if (kind == 3 && rank > 0 && seen.shape()[0] > 1) {
      through([](const NDArray& a) { return a.slice(0, Slice{1, {}}); });
    } else if (kind == 4 && rank == 2) {
      through([](const NDArray& a) { return a.diagonal(); });
    } else if (seen.contiguous()) {
      through([](const NDArray& a) { return a.flatten(); });
    }
    named_.push_back({seen, {from.meant.memory, places.to_vector<int64_t>()}});
    note("view " + std::to_string(named_.size() - 1) + " of kind " + std::to_string(kind));
  }

  // The values to write: an array of the target's shape for the program, a flat one for the meaning.
  struct Values {
    NDArray array, meant;
  };
  Values values_for(const Named& target) {
    const Shape& shape = target.array.shape();
    const int64_t n = shape.numel();
    if (choose(3) == 0) {
      const NDArray plain = test::some(shape, random_());
      return {plain, plain.flatten().clone()};
    }
    const Named& source = any();
    if (source.array.numel() == n) return {source.array.reshape(shape), source.meant.read(memories_)};
    const NDArray first = x_.flatten()[{Slice{0, n}}], meant = meant_x_.reshape({-1})[{Slice{0, n}}];
    return {first.reshape(shape) * 3.0, meant * 3.0};
  }

  void change() {
    Named& target = any();
    if (target.array.numel() == 0) return;
    const Shape shape = target.array.shape();
    const size_t kind = choose(8);
    note("change of kind " + std::to_string(kind));
    if (kind == 0) {
      target.array.fill_(7);
      return target.meant.write(memories_, ones({shape.numel()}, f64) * 7.0);
    }
    if (kind == 1) {
      target.array *= 2.0;
      return target.meant.write(memories_, target.meant.read(memories_) * 2.0);
    }
    Values values = values_for(target);
    const NDArray before = target.meant.read(memories_);
    if (kind == 2) {
      target.array += values.array;
      target.meant.write(memories_, before + values.meant);
    } else if (kind == 3 && target.array.rank() > 0) {
      target.array[{Ellipsis{}}] = values.array;
      target.meant.write(memories_, values.meant);
    } else if (kind == 4 && target.array.rank() > 0) {  // an index array instead of a slice
      std::vector<int64_t> all;
      for (int64_t i = 0; i < shape[0]; ++i) all.push_back(i);
      target.array[array(all)] = values.array;
      target.meant.write(memories_, values.meant);
    } else if (kind == 5) {  // a product of copies: arrays that a gradient reads must not be changed
      target.array.copy_from(values.array.clone() * target.array.clone());
      target.meant.write(memories_, values.meant * before);
    } else if (kind == 6) {  // a boolean mask
      const NDArray mask = test::some(shape, random_()) > 1.0;
      if (target.array.rank() == 0) return;
      target.array[mask] = 0.5;
      const NDArray keep = mask.flatten().to(f64);
      target.meant.write(memories_, before * (1.0 - keep) + keep * 0.5);
    } else {
      target.array.copy_from(values.array);
      target.meant.write(memories_, values.meant);
    }
  }

  void step() {
    const size_t kind = choose(10);
    if (kind == 0 && memories_.size() < 4) {
      make();
    } else if (kind < 4 && named_.size() < 12) {
      view();
    } else {
      change();
    }
  }

  std::mt19937 random_;
  NDArray x_, meant_x_;
  std::vector<Memory> memories_;
  std::vector<Named> named_;
  std::string text_;
};

// Runs a program and compares the value and the gradient of x with those of its meaning.
void compare(unsigned seed, int steps) {
  const NDArray values = test::some({kRows, kColumns}, seed);
  const NDArray x = values.clone().requires_grad_(), meant_x = values.clone().requires_grad_();
  Program program(seed, x, meant_x);
  program.run(steps);
  const NDArray result = program.result(), meant = program.meant_result();
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + program.text());
  ASSERT_NEAR(meant.item<double>(), result.item<double>(), 1e-9 * std::abs(meant.item<double>()));
  result.backward();
  meant.backward();
  const std::vector<double> expected = meant_x.grad().to_vector<double>();
  test::expect_close(expected, x.grad().to_vector<double>(), 1e-9, "gradient");
}

TEST(InPlaceProgram, RandomProgramsMeanWhatTheirFunctionalRewritesMean) {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    compare(seed, 5 + static_cast<int>(seed % 25));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(InPlaceProgram, SeveralThreadsRunProgramsOnOneLeaf) {
  constexpr unsigned kThreads = 4, kPrograms = 15;
  const NDArray values = test::some({kRows, kColumns}, 77);
  const NDArray x = values.clone().requires_grad_(), meant_x = values.clone().requires_grad_();
  for (unsigned t = 0; t < kThreads; ++t)
    for (unsigned i = 0; i < kPrograms; ++i) {
      Program program(1000 * t + i, meant_x, meant_x);
      program.run(20);
      program.meant_result().backward();
    }
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (unsigned i = 0; i < kPrograms; ++i) {
        Program program(1000 * t + i, x, meant_x);
        program.run(20);
        program.result().backward();
      }
    });
  for (std::thread& thread : threads) thread.join();
  test::expect_close(meant_x.grad().to_vector<double>(), x.grad().to_vector<double>(), 1e-9, "gradient");
}

TEST(InPlaceProgram, SeveralThreadsGoBackThroughOneProgram) {
  constexpr unsigned kThreads = 4;
  for (unsigned seed = 5000; seed < 5030; ++seed) {
    const NDArray x = test::some({kRows, kColumns}, seed).requires_grad_();
    Program program(seed, x, x);
    program.run(25);
    const NDArray result = program.result();
    const std::vector<double> expected =
        gradients({program.meant_result()}, {x}, {.retain_graph = true})[0].to_vector<double>();
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    std::vector<NDArray> found(kThreads);
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        found[t] = gradients({result}, {x}, {.retain_graph = true})[0];
      });
    for (std::thread& thread : threads) thread.join();
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + program.text());
    for (const NDArray& g : found) test::expect_close(expected, g.to_vector<double>(), 1e-9, "gradient");
  }
}

}  // namespace
}  // namespace mx
