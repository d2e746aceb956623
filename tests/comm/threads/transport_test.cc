#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "comm/threads/thread_transport.h"
#include "engine/base/error.h"
#include "tests/support/forking.h"

namespace mx::comm {
namespace {

Deadline soon() { return Deadline::after_ms(20'000); }

TEST(ThreadTransport, MessagesKeepTheirOrderWhateverTheirSizes) {
  auto transports = make_thread_transports(2);
  const std::vector<size_t> sizes{1, kEagerBytes, 100'000, 3, kEagerBytes + 1, 64};
  const size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  std::vector<unsigned char> sent(total), got(total);
  for (size_t i = 0; i < total; ++i) sent[i] = static_cast<unsigned char>(i * 7);
  std::thread receiver([&] {
    size_t at = 0;
    for (const size_t size : sizes) {
      transports[1]->post_receive(0, got.data() + at, size);
      at += size;
    }
    for (size_t i = 0; i < sizes.size() / 2; ++i) transports[1]->await_receive(0, soon());
    EXPECT_TRUE(std::equal(got.begin(), got.begin() + 1, sent.begin()));
    transports[1]->finish(soon());
  });
  size_t at = 0;
  for (const size_t size : sizes) {
    transports[0]->post_send(1, sent.data() + at, size);
    at += size;
  }
  transports[0]->finish(soon());
  receiver.join();
  EXPECT_EQ(got, sent);
}

TEST(ThreadTransport, ShortMessagesOfARankThatIsGoneStillArrive) {
  auto transports = make_thread_transports(2);
  int value = 5, got = 0, more = 0;
  transports[0]->post_send(1, &value, sizeof value);
  transports[0].reset();
  transports[1]->post_receive(0, &got, sizeof got);
  transports[1]->await_receive(0, soon());
  EXPECT_EQ(got, 5);
  transports[1]->post_receive(0, &more, sizeof more);
  EXPECT_THROW(transports[1]->await_receive(0, soon()), PeerLost);
}

TEST(ThreadTransport, TakesBackItsBuffersWhenItFails) {
  auto transports = make_thread_transports(2);
  int got = 0, value = 5;
  transports[1]->post_receive(0, &got, sizeof got);
  EXPECT_THROW(transports[1]->finish(Deadline::after_ms(10)), Timeout);
  transports[0]->post_send(1, &value, sizeof value);
  transports[0]->finish(soon());
  EXPECT_EQ(got, 0) << "a buffer was written after finish() had thrown";
  EXPECT_THROW(transports[1]->finish(soon()), Timeout) << "later calls fail as the first did";
}

TEST(ThreadTransport, FlushSendsAndExpectsNothing) {
  auto transports = make_thread_transports(3);
  const std::vector<unsigned char> large(kEagerBytes + 1, 3);
  std::vector<unsigned char> got(large.size());
  int never = 0;
  transports[0]->post_receive(2, &never, sizeof never);
  transports[0]->post_send(1, large.data(), large.size());
  transports[0]->flush(Deadline::after_ms(10));  // nobody receives, which is no error
  std::thread receiver([&] {
    transports[1]->post_receive(0, got.data(), got.size());
    transports[1]->finish(soon());
  });
  transports[0]->flush(soon());
  receiver.join();
  EXPECT_EQ(got, large);
  transports[1].reset();
  transports[0]->post_send(1, large.data(), large.size());
  transports[0]->flush(soon());  // nor is a rank that is gone
}

// Another thread may have held a mutex of the transport at the fork, so the child must not lock it.
TEST(ThreadTransport, AForkedChildDestroysItsCopyWithoutTouchingIt) {
  auto transports = make_thread_transports(2);
  const std::string end = test::run_in_child([&] {
    int got = 0;
    transports[0].reset();
    try {
      transports[1]->post_receive(0, &got, sizeof got);
      transports[1]->finish(Deadline::after_ms(10));
    } catch (const Timeout&) {
      return 0;  // rank 0 is not marked as gone
    }
    return 1;
  });
  EXPECT_EQ(end, "exit code 0");
}

TEST(ThreadTransport, MessagesOfDifferentSizesAreAnError) {
  auto transports = make_thread_transports(2);
  std::vector<unsigned char> sent(20), got(10);
  transports[0]->post_send(1, sent.data(), 20);
  transports[1]->post_receive(0, got.data(), 10);
  EXPECT_THROW(transports[1]->await_receive(0, soon()), ProtocolError);
}

TEST(ThreadTransport, AbortWakesARankThatSleeps) {
  auto transports = make_thread_transports(2);
  int got = 0;
  transports[1]->post_receive(0, &got, sizeof got);
  std::thread aborter([&] { transports[1]->abort(std::make_exception_ptr(Cancelled("enough"))); });
  EXPECT_THROW(transports[1]->finish(soon()), Cancelled);
  aborter.join();
}

TEST(ThreadTransport, WrongSizesOfGroupsAreRefused) {
  EXPECT_THROW(make_thread_transports(0), InvalidArgument);
  ThreadTransportOptions options;
  options.hosts = {"a"};
  EXPECT_THROW(make_thread_transports(2, options), InvalidArgument);
}

}  // namespace
}  // namespace mx::comm
