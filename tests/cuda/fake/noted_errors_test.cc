// Errors that kernels note (engine/device/kernel_error.h), on streams and in graphs of the backend of GPUs.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "engine/device/kernel_error.h"
#include "engine/device/registry.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/device/cuda_ops.h"

namespace mx::conformance {
namespace {

/// Appends a kernel that notes `value` if *wrong is not 0 when it runs.
void check_values(Stream& stream, const std::atomic<int>& wrong, int64_t value) {
  stream.submit([&stream, &wrong, value](KernelContext& context) {
    KernelError* const word = dynamic_cast<KernelErrors&>(stream).watch([](const KernelError& e) {
      return std::make_exception_ptr(InvalidArgument("noted " + std::to_string(e.value)));
    });
    fake_cuda::launch(nullptr, 1, 1, 0, static_cast<cudaStream_t>(context.native_stream()), [=, &wrong] {
      if (wrong.load() != 0) {
        word->value = value;
        std::atomic_ref(word->found).store(1);
      }
      return true;
    });
  });
}

/// Records an event and returns the error that it carries; "" if it is complete.
std::string recorded(Stream& stream) {
  auto event = stream.device().new_event();
  stream.record(*event);
  while (event->query() == EventStatus::pending) std::this_thread::yield();
  return text_of(event->error());
}

TEST(FakeCudaNotedErrors, AnErrorBelongsToTheNextEventAndToOneSynchronize) {
  auto stream = get_device(gpu(0)).new_stream();
  std::atomic<int> wrong = 1;
  check_values(*stream, wrong, 7);
  (void)stream->mark();  // takes nothing away from the event
  EXPECT_EQ("noted 7", recorded(*stream));
  EXPECT_EQ("", recorded(*stream));
  std::string notified;
  std::atomic<bool> called = false;
  stream->notify([&](std::exception_ptr error) {
    notified = text_of(error);
    called = true;
  });
  while (!called) std::this_thread::yield();
  EXPECT_EQ("noted 7", notified);
  EXPECT_THROW(stream->synchronize(), InvalidArgument);
  EXPECT_NO_THROW(stream->synchronize());
  EXPECT_EQ(nullptr, get_device(gpu(0)).lost());
}

TEST(FakeCudaNotedErrors, OfSeveralErrorsTheFirstIsReported) {
  auto stream = get_device(gpu(0)).new_stream();
  std::atomic<int> wrong = 1, right = 0;
  check_values(*stream, right, 1);
  check_values(*stream, wrong, 2);
  check_values(*stream, wrong, 3);
  EXPECT_EQ("noted 2", recorded(*stream));
  check_values(*stream, wrong, 4);
  EXPECT_EQ("noted 4", recorded(*stream));
  for (int i = 0; i < 1000; ++i) {  // words are used again, and hold nothing old
    check_values(*stream, right, 5);
    if (i % 10 == 0) {
      ASSERT_EQ("", recorded(*stream));
    }
  }
  try {
    stream->synchronize();
    ADD_FAILURE();
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ("noted 2", e.what());
  }
}

TEST(FakeCudaNotedErrors, EachLaunchOfAGraphReportsItsOwnErrors) {
  auto builder = get_device(gpu(0)).new_graph_builder();
  std::atomic<int> wrong = 0;
  builder->add({}, [&](Stream& stream) { check_values(stream, wrong, 9); });
  auto graph = builder->finish();
  auto stream = get_device(gpu(0)).new_stream();
  for (const int now : {0, 1, 0, 0, 1, 1, 0}) {
    wrong = now;
    graph->launch(*stream);
    EXPECT_EQ(now == 0 ? "" : "noted 9", recorded(*stream));
  }
  wrong = 1;  // both launches find it, and both say so
  auto first = get_device(gpu(0)).new_event(), second = get_device(gpu(0)).new_event();
  graph->launch(*stream);
  stream->record(*first);
  graph->launch(*stream);
  stream->record(*second);
  graph.reset();
  while (second->query() == EventStatus::pending) std::this_thread::yield();
  EXPECT_EQ("noted 9", text_of(first->error()));
  EXPECT_EQ("noted 9", text_of(second->error()));
}

TEST(FakeCudaNotedErrors, AWaitOfAnotherStreamIsNotAnError) {
  auto stream = get_device(gpu(0)).new_stream(), other = get_device(gpu(1)).new_stream();
  std::atomic<int> wrong = 1;
  auto event = get_device(gpu(0)).new_event();
  check_values(*stream, wrong, 1);
  stream->record(*event);
  other->wait(*event);
  EXPECT_EQ("", recorded(*other));
  EXPECT_NO_THROW(other->synchronize());
  while (event->query() == EventStatus::pending) std::this_thread::yield();
  EXPECT_EQ("noted 1", text_of(event->error()));
}

}  // namespace
}  // namespace mx::conformance
