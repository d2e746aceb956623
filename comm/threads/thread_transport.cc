#include "comm/threads/thread_transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "comm/check_rank.h"
#include "comm/host_name.h"
#include "comm/ring.h"
#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "engine/base/futex.h"
#include "engine/base/process_mark.h"

namespace mx::comm {

namespace {

// Wakes one rank. Other ranks ring it after they have changed something for which the rank may wait.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<bool> sleeping{false};

  void ring() {
    // Sequentially consistent, like the sleeper's accesses: either the sleeper sees the new number, or this
    // thread sees that it sleeps.
    rings.fetch_add(1);
    if (sleeping.load()) futex_wake(rings, 1);
  }
};

// The messages from one rank to another. A message waits in `sends` for its receiver, or its receiver waits
// in `receives`; never both.
struct alignas(64) Channel {
  struct Send {
    const unsigned char* data = nullptr;  // null: `copy` holds the message
    size_t bytes = 0;
    std::vector<unsigned char> copy;
  };
  struct Receive {
    unsigned char* data = nullptr;
    size_t bytes = 0;
  };

  std::mutex mutex;
  // Guarded by the mutex.
  Ring<Send> sends;  // a slot keeps the memory of its copy
  Ring<Receive> receives;
  size_t wrong_sent = 0, wrong_expected = 0;  // sizes of the first message whose sizes differ

  // Numbers of messages that have ended for the sender and for the receiver, written under the mutex. The
  // receiver's includes no message behind one of which the sizes differ.
  std::atomic<uint64_t> sent{0}, received{0};
  std::atomic<bool> wrong{false};

  void deliver(const unsigned char* from, size_t bytes, const Receive& to) {
    if (wrong.load(std::memory_order_relaxed)) return;
    if (bytes != to.bytes) {
      wrong_sent = bytes;
      wrong_expected = to.bytes;
      wrong.store(true, std::memory_order_release);
      return;
    }
    std::memcpy(to.data, from, bytes);
    received.fetch_add(1, std::memory_order_release);
  }
};

struct Hub {
  Hub(int ranks, const ThreadTransportOptions& options)
      : size(ranks),
        channels(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)),
        bells(static_cast<size_t>(ranks)),
        gone(static_cast<size_t>(ranks)),
        hosts(options.hosts) {
    if (hosts.empty()) hosts.assign(static_cast<size_t>(ranks), host_name());
  }
  Channel& channel(int from, int to) {
    return channels[static_cast<size_t>(from) * static_cast<size_t>(size) + static_cast<size_t>(to)];
  }
  Doorbell& bell(int rank) { return bells[static_cast<size_t>(rank)]; }

  const int size;
  std::vector<Channel> channels;
  std::vector<Doorbell> bells;
  std::vector<std::atomic<bool>> gone;
  std::vector<std::string> hosts;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank, uint64_t delay_seed)
      : hub_(std::move(hub)),
        rank_(rank),
        posted_(static_cast<size_t>(hub_->size)),
        delays_(delay_seed != 0),
        random_(delay_seed * 31 + static_cast<uint64_t>(rank)) {}

  ~ThreadTransport() override {
    if (!process_.is_here()) return;  // another thread may have held a mutex at the fork
    withdraw();
    hub_->gone[static_cast<size_t>(rank_)].store(true, std::memory_order_release);
    for (int peer = 0; peer < hub_->size; ++peer) hub_->bell(peer).ring();
  }

  const std::string& type() const override {
    static const std::string name = "threads";
    return name;
  }
  int rank() const override { return rank_; }
  int size() const override { return hub_->size; }
  std::string host(int rank) const override {
    check_rank("host", rank, size());
    return hub_->hosts[static_cast<size_t>(rank)];
  }

  void post_send(int peer, const void* data, size_t bytes) override {
    if (withdrawn_) return;
    pause();
    Channel& channel = hub_->channel(rank_, peer);
    const auto* const from = static_cast<const unsigned char*>(data);
    {
      std::lock_guard lock(channel.mutex);
      if (!channel.receives.empty()) {
        channel.deliver(from, bytes, channel.receives.front());
        channel.receives.pop();
        channel.sent.fetch_add(1, std::memory_order_relaxed);
      } else if (bytes <= kEagerBytes) {
        Channel::Send& send = channel.sends.push();
        send.data = nullptr;
        send.bytes = bytes;
        send.copy.assign(from, from + bytes);
        channel.sent.fetch_add(1, std::memory_order_relaxed);
      } else {
        Channel::Send& send = channel.sends.push();
        send.data = from;
        send.bytes = bytes;
      }
    }
    ++posted_[static_cast<size_t>(peer)].sends;
    hub_->bell(peer).ring();
  }

  void post_receive(int peer, void* data, size_t bytes) override {
    if (withdrawn_) return;
    pause();
    Channel& channel = hub_->channel(peer, rank_);
    const Channel::Receive receive{static_cast<unsigned char*>(data), bytes};
    bool freed = false;
    {
      std::lock_guard lock(channel.mutex);
      if (channel.sends.empty()) {
        channel.receives.push() = receive;
      } else {
        Channel::Send& send = channel.sends.front();
        freed = send.data != nullptr;
        channel.deliver(freed ? send.data : send.copy.data(), send.bytes, receive);
        if (freed) channel.sent.fetch_add(1, std::memory_order_release);
        channel.sends.pop();
      }
    }
    ++posted_[static_cast<size_t>(peer)].receives;
    if (freed) hub_->bell(peer).ring();
  }

  void await_receive(int peer, Deadline deadline) override {
    Posted& posted = posted_[static_cast<size_t>(peer)];
    wait(deadline, [&] { return received(peer, posted.awaited + 1); });
    ++posted.awaited;
  }

  size_t await_first(const std::vector<int>& peers, Deadline deadline) override {
    size_t first = 0;
    wait(deadline, [&] {
      for (first = 0; first < peers.size(); ++first)
        if (arrived(peers[first]) > 0) return true;
      // Nothing has arrived: now a rank that is gone counts.
      for (first = 0; first < peers.size(); ++first)
        if (received(peers[first], posted_[static_cast<size_t>(peers[first])].awaited + 1)) return true;
      return false;
    });
    ++posted_[static_cast<size_t>(peers[first])].awaited;
    return first;
  }

  uint64_t arrived(int peer) const override {
    return hub_->channel(peer, rank_).received.load(std::memory_order_acquire) -
           posted_[static_cast<size_t>(peer)].awaited;
  }

  void finish(Deadline deadline) override {
    wait(deadline, [&] {
      for (int peer = 0; peer < hub_->size; ++peer)
        if (!is_done(peer)) return false;
      return true;
    });
    for (Posted& posted : posted_) posted.awaited = posted.receives;
  }

  // Short messages have left when they are posted. Long ones wait here for their receivers.
  void flush(Deadline deadline) noexcept override {
    try {
      wait_until(deadline, [&] {
        for (int peer = 0; peer < hub_->size; ++peer)
          if (!hub_->gone[static_cast<size_t>(peer)].load(std::memory_order_acquire) && !all_sent(peer))
            return false;
        return true;
      });
    } catch (...) {  // abort()
    }
  }

  void abort(std::exception_ptr reason) override {
    {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(reason);
      failed_.store(true, std::memory_order_release);
    }
    hub_->bell(rank_).ring();
  }

 private:
  struct Posted {
    uint64_t sends = 0, receives = 0, awaited = 0;
  };

  // Returns whether `number` messages have arrived from a peer. Throws if no more can come.
  bool received(int peer, uint64_t number) {
    Channel& channel = hub_->channel(peer, rank_);
    const auto arrived = [&] { return channel.received.load(std::memory_order_acquire) >= number; };
    if (arrived()) return true;
    // The message may have arrived since, and a later one may be the wrong one. The caller must see the
    // header of a call that differs, because only the error that it makes of it names the calls.
    MX_CHECK(!channel.wrong.load(std::memory_order_acquire) || arrived(), ProtocolError,
             "[threads] expected a message of ", channel.wrong_expected, " bytes from rank ", peer,
             ", got one of ", channel.wrong_sent, " bytes");
    check_alive(peer, arrived);
    return arrived();
  }

  // Throws PeerLost if the peer is gone and the event, which it could have caused before, has not occurred.
  template <class F>
  void check_alive(int peer, F occurred) {
    MX_CHECK(!hub_->gone[static_cast<size_t>(peer)].load(std::memory_order_acquire) || occurred(), PeerLost,
             "[threads] expected a message to or from rank ", peer, " on ", host(peer),
             ", got the end of that rank's communicator");
  }

  bool is_done(int peer) {
    const Posted& posted = posted_[static_cast<size_t>(peer)];
    if (posted.receives > posted.awaited && !received(peer, posted.receives)) return false;
    if (all_sent(peer)) return true;
    check_alive(peer, [&] { return all_sent(peer); });
    return all_sent(peer);
  }

  bool all_sent(int peer) {
    return hub_->channel(rank_, peer).sent.load(std::memory_order_acquire) >=
           posted_[static_cast<size_t>(peer)].sends;
  }

  // Blocks until condition() holds, and returns true, or until the deadline, and returns false.
  template <class F>
  bool wait_until(Deadline deadline, F condition) {
    Doorbell& bell = hub_->bell(rank_);
    struct Awake {
      Doorbell& bell;
      ~Awake() { bell.sleeping.store(false); }
    };
    for (int round = 0;; ++round) {
      if (failed_.load(std::memory_order_acquire)) throw_failure();
      if (condition()) return true;
      if (round < kPolls) {
        cpu_relax();
        continue;
      }
      bell.sleeping.store(true);
      const Awake awake{bell};
      const uint32_t rings = bell.rings.load();
      if (failed_.load(std::memory_order_acquire) || condition()) continue;
      const int64_t left_ms = deadline.poll_ms();
      if (left_ms == 0) return false;
      futex_wait(bell.rings, rings, left_ms * 1'000'000);
    }
  }

  // The same; throws after the deadline.
  template <class F>
  void wait(Deadline deadline, F condition) {
    try {
      if (!wait_until(deadline, condition)) throw_timeout();
    } catch (...) {
      abort(std::current_exception());
      withdraw();
      throw;
    }
  }

  [[noreturn]] void throw_failure() {
    std::exception_ptr failure;
    {
      std::lock_guard lock(mutex_);
      failure = failure_;
    }
    std::rethrow_exception(failure);
  }

  [[noreturn]] void throw_timeout() {
    std::string missing;
    for (int peer = 0; peer < hub_->size; ++peer) {
      bool done = true;
      try {
        done = is_done(peer);
      } catch (const Error&) {
        done = false;
      }
      if (!done)
        missing += (missing.empty() ? "rank " : ", rank ") + std::to_string(peer) + " on " + host(peer);
    }
    throw Timeout("[threads] expected messages before the deadline, got none from or to " + missing);
  }

  // Takes back everything that is posted: no other rank reads or writes the buffers of this one afterwards.
  void withdraw() {
    if (std::exchange(withdrawn_, true)) return;
    for (int peer = 0; peer < hub_->size; ++peer) {
      Channel& to = hub_->channel(rank_, peer);
      {
        std::lock_guard lock(to.mutex);
        // Copies that were posted before the first withdrawn message still reach the receiver.
        size_t kept = 0;
        while (kept < to.sends.size() && to.sends[kept].data == nullptr) ++kept;
        to.sends.truncate(kept);
      }
      Channel& from = hub_->channel(peer, rank_);
      std::lock_guard lock(from.mutex);
      from.receives.truncate(0);
    }
  }

  void pause() {
    if (!delays_) return;
    const uint64_t draw = random_();
    if (draw % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds((draw >> 8) % 200));
    if (draw % 4 == 1) std::this_thread::yield();
  }

  static constexpr int kPolls = 400;

  const ProcessMark process_;
  const std::shared_ptr<Hub> hub_;
  const int rank_;
  std::vector<Posted> posted_;
  bool withdrawn_ = false;
  const bool delays_;
  std::mt19937_64 random_;

  std::mutex mutex_;
  std::exception_ptr failure_;  // guarded by mutex_
  std::atomic<bool> failed_{false};
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_thread_transports(int ranks,
                                                               const ThreadTransportOptions& options) {
  MX_CHECK(ranks >= 1, InvalidArgument, "[make_thread_transports] expected at least one rank, got ", ranks);
  MX_CHECK(options.hosts.empty() || options.hosts.size() == static_cast<size_t>(ranks), InvalidArgument,
           "[make_thread_transports] expected a host for each of ", ranks, " ranks, got ",
           options.hosts.size());
  const auto hub = std::make_shared<Hub>(ranks, options);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank)
    transports.push_back(std::make_unique<ThreadTransport>(hub, rank, options.delay_seed));
  return transports;
}

}  // namespace mx::comm
