// In-place changes: the ones that are recorded, and the ones that are detected as errors.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/dlpack.h"
#include "ndarray/grad_mode.h"
#include "operators/operators.h"
#include "optim/update.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

TEST(InPlaceGradient, OperatorsOnResults) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) {
        NDArray y = a[0] * 2;
        y += a[1];
        y *= y.clone();
        y -= 3;
        return sum(y * a[0]);
      },
      {test::some({2, 3}, 1), test::some({3}, 2)});
}

TEST(InPlaceGradient, OperatorsOnViewsWithoutANameAndTheRemainder) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) {
        NDArray y = a[0] * 2;
        y.transpose() += a[1];
        y.diagonal() *= a[1];
        y.slice(0, {1, {}}) -= 3;
        y %= 7;
        y[0] %= 5;
        return sum(y * a[0]);
      },
      {test::some({3, 3}, 1), test::some({3}, 2)});
}

TEST(InPlaceGradient, GoingThroughRowsIsRecorded) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) {
        NDArray y = a[0] * 2, total = zeros({3}, f64);
        for (const NDArray& row : a[0]) total = total * 0.5 + row * row;
        for (NDArray row : y) row *= a[1];
        return sum(total) + sum(y * y);
      },
      {test::some({2, 3}, 1), test::some({3}, 2)});
}

TEST(InPlaceGradient, AssignmentsToPartsOfAResult) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) {
        NDArray y = a[0] * 2;
        y[1] = a[1] * 3;
        y[{colon, 0}] = 7;
        y[{0, Slice{1, 3}}] += a[1][{Slice{0, 2}}];
        return sum(y * y);
      },
      {test::some({3, 3}, 1), test::some({3}, 2)});
}

TEST(InPlaceGradient, RecordedValuesIntoAPlainArray) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) {
        NDArray all = zeros({3, 4}, f64);
        for (int64_t i = 0; i < 3; ++i) all[i] = a[0] * (static_cast<double>(i) + 1);
        all[{colon, Slice{0, 4, 2}}] = a[0].slice(0, Slice{0, 2});
        return sum(all * all);
      },
      {test::some({4})});
}

TEST(InPlaceGradient, AdvancedAssignments) {
  const NDArray rows = array<int64_t>({2, 0});
  test::expect_gradients(
      [&](const std::vector<NDArray>& a) {
        NDArray y = a[0] * 2;
        y[rows] = a[1] * 3;
        y[{colon, rows}] += 1;
        return sum(y * y);
      },
      {test::some({3, 3}, 1), test::some({2, 3}, 2)});
}

TEST(InPlaceGradient, ViewsSeeWhatWasAssignedToTheirBase) {
  NDArray x = test::some({2, 3}).requires_grad_(), v = test::some({3}, 5).requires_grad_();
  NDArray y = x * 2;
  const NDArray row = y[1];
  y[1] = v;
  sum(row * row).backward();
  test::expect_close((v.detach() * 2).to_vector<double>(), v.grad().to_vector<double>(), 1e-12, "assigned");
  EXPECT_EQ(std::vector<double>(6, 0), x.grad().to_vector<double>()) << "overwritten";
}

TEST(InPlaceGradient, AWholeAssignmentForgetsWhatWasThere) {
  NDArray x = test::some({3}).requires_grad_();
  NDArray y = x * 2;
  y.fill_(1);
  EXPECT_FALSE(y.requires_grad());
  y.copy_from(x);
  sum(y * y).backward();
  test::expect_close((x.detach() * 2).to_vector<double>(), x.grad().to_vector<double>(), 1e-12, "copied");
}

TEST(InPlaceGradient, SourcesAreBroadcastAndConverted) {
  NDArray x = test::some({1, 3}).to(f32).requires_grad_();
  NDArray y = zeros({4, 3}, f64);
  y.copy_from(x);
  sum(y).backward();
  EXPECT_EQ(f32, x.grad().dtype());
  EXPECT_EQ((std::vector<float>{4, 4, 4}), x.grad().to_vector<float>());
}

TEST(InPlaceGradient, ALeafMayNotBeChangedWhileRecording) {
  NDArray x = test::some({2, 3}).requires_grad_();
  for (const auto& change : std::vector<std::function<void()>>{
           [&] { x += 1; }, [&] { x.fill_(0); }, [&] { x[0] = 1; }, [&] { x.copy_from(ones({3})); },
           [&] {
             x[{0, 1}] = x[{1, 1}];
           },
           [&] { x[array<int64_t>({1})] = 2; }, [&] { x %= 2; }, [&] { x.transpose() += 1; },
           [&] { x.diagonal() *= 2; },
           [&] {
             x.slice(0, {1, {}}) -= 1;
           },
           [&] {
             for (NDArray row : x) row.fill_(0);
           }}) {
    const std::vector<double> before = x.to_vector<double>();
    const std::string message = error_of<InvalidState>(change);
    EXPECT_TRUE(contains(message, "requires_grad_()") && contains(message, "NoGrad")) << message;
    EXPECT_EQ(before, x.to_vector<double>()) << "nothing has happened";
  }
  NoGrad pause;
  x += 1;
  x[0] = 5;
}

// Elements beyond the recorded array have no place in its gradient.
TEST(InPlaceGradient, AnAssignmentBeyondTheRecordedArrayIsRefused) {
  const NDArray w = array({5.0, 7.0}).requires_grad_();
  for (const bool recorded : {true, false})
    for (const int64_t offset : {4, 3, 1, 0}) {
      const NDArray base = zeros({6}, f64);
      NDArray part = base[Slice{2, 4}].detach();
      if (recorded) part.copy_from(w * 1);
      const std::vector<double> before = base.to_vector<double>();
      NDArray view = part.as_strided({2}, {1}, offset);
      const std::string message = error_of<InvalidState>([&] { view.copy_from(w * 2); });
      EXPECT_TRUE(contains(message, "as_strided") && contains(message, "in_place_gradient_test.cc"))
          << message;
      if (recorded) error_of<InvalidState>([&] { view.fill_(3); });
      EXPECT_EQ(before, base.to_vector<double>()) << "nothing has happened";
      NDArray within = part.as_strided({1}, {1}, 3);
      within.copy_from(w[Slice{0, 1}] * 2);
      sum(part * 1).backward();
      EXPECT_EQ((std::vector<double>{recorded ? 3.0 : 2.0, 0}), w.grad().to_vector<double>());
      w.set_grad({});
      const NoGrad pause;
      view.fill_(3);
    }
}

TEST(InPlaceGradient, UpdateRulesWantNoRecording) {
  NDArray w = test::some({3}).requires_grad_();
  const NDArray g = ones({3}, f64);
  const optim::UpdateNumbers numbers{.learning_rate = full({}, 0.5)};
  const std::string message = error_of<InvalidArgument>([&] { optim::sgd_update({{w}, {g}}, {}, numbers); });
  EXPECT_TRUE(contains(message, "NoGrad")) << message;
  NoGrad pause;
  optim::sgd_update({{w}, {g}}, {}, numbers);
}

TEST(InPlaceGradient, AChangedSavedValueIsNamed) {
  NDArray x = test::some({3}).requires_grad_();
  NDArray y = exp(x);
  const NDArray z = sum(y * y);
  {
    NoGrad pause;
    y += 1;
  }
  const std::string message = error_of<InvalidState>([&] { z.backward(); });
  EXPECT_TRUE(contains(message, "[mul]") && contains(message, "changed in place") &&
              contains(message, "in_place_gradient_test.cc"))
      << message;

  NDArray w = test::some({3}).requires_grad_();
  const NDArray c = test::some({3}, 4);
  const NDArray product = sum(w * c);
  NDArray changed = c;
  changed[1] = 0;
  error_of<InvalidState>([&] { product.backward(); });
}

// Whether a read with arrays in the index is recorded is decided at its line, as for every operation.
TEST(InPlaceGradient, AReadWithANameIsRecordedAsAtItsLine) {
  NDArray w = array({1.f, 2.f, 3.f}).requires_grad_();
  const NDArray i = array<int64_t>({0, 2});
  auto recorded = w[i];
  {
    const NoGrad guard;
    EXPECT_EQ((std::vector<float>{1, 3}), recorded.to_vector<float>());
    recorded.wait();
  }
  sum(recorded * 2).backward();
  EXPECT_EQ((std::vector<float>{2, 0, 2}), w.grad().to_vector<float>());
  const auto unrecorded = [&] {
    const NoGrad guard;
    return w[i];
  }();
  EXPECT_FALSE(unrecorded.requires_grad());
  NDArray plain = array({1.f, 2.f, 3.f});
  auto before = plain[i];
  plain.requires_grad_();
  EXPECT_FALSE(before.requires_grad());
}

TEST(InPlaceGradient, AnExportForReadingIsNoChange) {
  const NDArray x = array({1.f, 2.f}).requires_grad_();
  const NDArray y = x * 3, loss = sum(y * y);
  auto* tensor = to_dlpack(y, DLPackAccess::read_only);
  tensor->deleter(tensor);
  loss.backward({}, {.retain_graph = true});
  EXPECT_EQ((std::vector<float>{18, 36}), x.grad().to_vector<float>());
  tensor = to_dlpack(y);  // the consumer may have written to the memory
  tensor->deleter(tensor);
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { loss.backward(); }), "in place"));
}

TEST(InPlaceGradient, AReplayThatChangesASavedValueIsFound) {
  for (const int64_t size : {2, 100'000}) {
    const NDArray x = ones({size}).requires_grad_();
    NDArray factor = full({size}, 2), unused = ones({size});
    Engine& engine = Engine::get();
    Segment change = engine.record([&] { factor += 1; });
    Segment outer = engine.record([&] { change.replay(); });
    Segment other = engine.record([&] { unused += 1; });
    for (Segment* segment : {&change, &outer}) {
      const NDArray loss = sum(x * factor);
      other.replay();
      loss.backward({}, {.retain_graph = true});
      segment->replay();
      EXPECT_TRUE(contains(error_of<InvalidState>([&] { loss.backward(); }), "in place"));
    }
    EXPECT_EQ(4, factor[0].item<float>());
    EXPECT_EQ(2 + 3, x.grad()[size - 1].item<float>());
  }
}

TEST(InPlaceGradient, WhatAReplayMakesMayBeDifferentiatedAfterIt) {
  NDArray input = ones({2}), loss;
  const NDArray w = array({2.f, 3.f}).requires_grad_();
  const Segment forward = Engine::get().record([&] {
    NDArray y = input * w;
    y *= 2;
    loss = sum(y * y);
  });
  Segment(forward).replay();
  loss.backward({}, {.retain_graph = true});
  EXPECT_EQ((std::vector<float>{16, 24}), w.grad().to_vector<float>());
}

// The segment makes the memory of `made` itself. A gradient that was recorded outside of it has saved one of
// its values, which the next replay replaces.
TEST(InPlaceGradient, AReplayThatMakesASavedValueAgainIsFound) {
  for (const Context context : {cpu(), virt(0)}) {
    for (const int64_t size : {2, 100'000}) {
      NDArray input = full({size}, 2, f32, context), made, more;
      Segment segment = Engine::get().record([&] {
        made = input * 3;
        more = made + 1;
        more *= 2;
      });
      segment.replay();
      const NDArray x = ones({size}, f32, context).requires_grad_();
      const NDArray of_made = sum(x * made), of_more = sum(x * more), of_view = sum(x[0] * made[1]);
      of_made.backward({}, {.retain_graph = true});
      of_more.backward({}, {.retain_graph = true});
      of_view.backward({}, {.retain_graph = true});
      EXPECT_EQ(6 + 14 + 6, x.grad()[0].item<float>());
      input += 1;
      segment.replay();
      EXPECT_EQ(9, made[0].item<float>());
      for (const NDArray& loss : {of_made, of_more, of_view})
        EXPECT_TRUE(contains(error_of<InvalidState>([&] { loss.backward(); }), "changed in place"));
      const NDArray again = sum(x * made);
      again.backward();
      EXPECT_EQ(26 + 9, x.grad()[0].item<float>());
    }
  }
}

// If a gradient is recorded inside a segment, a replay of the segment computes the loss and its gradient
// again, so no saved value is out of date. This holds on a device too, and if another segment replays the
// segment.
TEST(InPlaceGradient, WhatIsRecordedInASegmentFollowsItsReplays) {
  for (const Context context : {cpu(), virt(0)}) {
    const NDArray w = full({2}, 3, f32, context).requires_grad_();
    NDArray made, loss, outer_loss;
    Engine& engine = Engine::get();
    Segment inner = engine.record([&] {
      made = w * 2;
      loss = sum(made * made);
    });
    for (int i = 0; i < 3; ++i) {
      w.set_grad({});
      inner.replay();
      loss.backward({}, {.retain_graph = true});
      EXPECT_EQ(24, w.grad()[1].item<float>());
    }
    Segment outer = engine.record([&] {
      inner.replay();
      outer_loss = sum(exp(w) * made);
    });
    outer.replay();
    outer.replay();
    outer_loss.backward({}, {.retain_graph = true});
    loss.backward({}, {.retain_graph = true});
    EXPECT_NEAR(24 + 24 + std::exp(3.) * (6 + 2), w.grad()[1].item<float>(), 1e-3);
    inner.replay();  // replaces what the operations of `outer` have read
    EXPECT_TRUE(contains(error_of<InvalidState>([&] { outer_loss.backward(); }), "changed in place"));
    loss.backward();
  }
}

// Between two segments of which neither contains the other, a replay of one is a change for what the other
// has saved, whatever the order of the replays.
TEST(InPlaceGradient, AReplayIsAChangeForWhatAnotherSegmentHasSaved) {
  const NDArray w = array({1.f, 2.f}).requires_grad_();
  NDArray input = ones({2}), made, loss;
  Engine& engine = Engine::get();
  Segment first = engine.record([&] { made = input * 3; });
  Segment second = engine.record([&] { loss = sum(w * made); });
  first.replay();
  second.replay();
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { loss.backward(); }), "changed in place"));
}

TEST(InPlaceGradient, ChangesOfValuesThatNobodyNeedsAreNoMistake) {
  NDArray x = test::some({3}).requires_grad_();
  NDArray y = x * 2;
  const NDArray z = y + 1;
  {
    NoGrad pause;
    y.fill_(9);
  }
  sum(z).backward();
  EXPECT_EQ(std::vector<double>(3, 2), x.grad().to_vector<double>());
}

}  // namespace
}  // namespace mx
