// StreamOrder allocates nothing per operation in steady state. This is a separate program because it counts
// the calls of operator new.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/detail/dependency.h"
#include "engine/detail/pools.h"
#include "engine/detail/stream_order.h"
#include "tests/engine/stream_order_fakes.h"
#include "tests/support/counted_allocations.h"

namespace mx::test {
namespace {

using detail::Access;
using detail::Op;

class Nobody : public detail::StreamOrder::Listener {
 public:
  void host_may_start(Op*) override {}
  void retired(uint16_t, uint64_t, detail::Failure*, bool) override {}
  void maybe_landed(detail::VarBlock*, detail::StreamPoint, detail::Failure*) override {}
  void ready(Op*, bool) {}
  void written(detail::VarBlock*) {}
};

TEST(StreamOrderAllocations, NoneInSteadyState) {
  fake_device().reset();
  detail::VarPool vars;
  detail::OpPool ops;
  Nobody nobody;
  detail::DependencyState<Nobody> dependency(nobody);
  detail::StreamOrder order(nobody, 4);
  const detail::OpType type = {.run = nullptr, .destroy = nullptr, .async = false, .copy_bytes = 0};
  detail::VarBlock* v[4];
  for (auto& var : v) var = vars.take(nullptr);
  Op* op = ops.take_chain();
  op->type = &type;
  detail::StreamOrder::Issue issue;

  uint64_t during = 0;
  const auto run = [&](std::initializer_list<std::pair<int, Access>> links) {
    op->links = 0;
    op->flags = 0;
    for (const auto& [var, access] : links) op->link(op->links++).set(v[var], access);
    dependency.link(op);
    uint64_t before = allocations;
    order.plan(op, fake(), StreamKind::compute, issue);
    during += allocations - before;
    detail::StreamOrder::begin(issue);
    detail::StreamOrder::end(issue);  // not counted, because the fakes allocate here
    before = allocations;
    order.issued(op, issue, nullptr);
    during += allocations - before;
    dependency.complete(op, detail::Outcome::done, nullptr);
  };
  for (int round = 0; round < 300; ++round) {
    if (round == 100) during = 0;
    run({{0, Access::update}});
    run({{0, Access::read}, {1, Access::write}});
    run({{0, Access::read}, {2, Access::write}});
    run({{1, Access::read}, {2, Access::read}, {3, Access::update}});
    if (round % 5 != 4) continue;
    run_all_streams();
    const uint64_t before = allocations;
    order.poll();
    during += allocations - before;
  }
  EXPECT_EQ(during, 0u);
  EXPECT_GT(order.wait_count(), 0u);
  EXPECT_FALSE(order.outstanding());
}

}  // namespace
}  // namespace mx::test
