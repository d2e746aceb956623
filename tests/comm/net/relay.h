// Relay: stands between the two ends of a connection, keeps what passes, and can change or cut it.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "comm/net/socket.h"

namespace mx::test {

class Relay {
 public:
  /// Called with the bytes that go from the connector to the acceptor and how many went before them; may
  /// change them. Returns whether the connection goes on.
  using Change = std::function<bool(std::string& bytes, size_t before)>;

  /// Passes on the first connection to `target`.
  explicit Relay(comm::Endpoint target, Change change = {})
      : listener_(comm::listen_at("127.0.0.1")), target_(std::move(target)), change_(std::move(change)) {
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    over_ = true;
    thread_.join();
  }
  const comm::Endpoint& at() const { return listener_.at; }
  /// Everything that has passed so far, both directions one behind the other.
  std::string seen() const {
    std::lock_guard lock(mutex_);
    return seen_[0] + seen_[1];
  }

 private:
  void run() {
    try {
      comm::Fd from, to;
      while (!from) {
        if (over_) return;
        try {
          from = comm::accept_one(listener_.socket, comm::Deadline::after_ms(20));
        } catch (const Timeout&) {
        }
      }
      to = comm::connect_to(target_, comm::Deadline::after_ms(30000));
      bool open[2] = {true, true};
      while (!over_ && (open[0] || open[1])) {
        pollfd entries[2] = {{open[0] ? from.get() : -1, POLLIN, 0}, {open[1] ? to.get() : -1, POLLIN, 0}};
        if (::poll(entries, 2, 20) <= 0) continue;
        for (const int side : {0, 1}) {
          if (entries[side].revents == 0) continue;
          open[side] = pass(side == 0 ? from : to, side == 0 ? to : from, side);
          if (!open[side] && cut_) return;
        }
      }
    } catch (const std::exception&) {  // an end of the connection is gone
    }
  }

  bool pass(const comm::Fd& from, const comm::Fd& to, int side) {
    std::array<char, 16 * 1024> buffer;
    const ssize_t got = ::recv(from.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      ::shutdown(to.get(), SHUT_WR);
      return false;
    }
    std::string bytes(buffer.data(), static_cast<size_t>(got));
    if (side == 0 && change_ && !change_(bytes, before_)) {
      cut_ = true;
      return false;
    }
    if (side == 0) before_ += static_cast<size_t>(got);
    {
      std::lock_guard lock(mutex_);
      seen_[side] += bytes;
    }
    for (size_t at = 0; at < bytes.size() && !over_;) {
      const ssize_t sent =
          ::send(to.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) at += static_cast<size_t>(sent);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0) {
        pollfd entry{to.get(), POLLOUT, 0};
        ::poll(&entry, 1, 20);
      }
    }
    return true;
  }

  const comm::Listener listener_;
  const comm::Endpoint target_;
  const Change change_;
  std::atomic<bool> over_{false};
  bool cut_ = false;
  size_t before_ = 0;
  mutable std::mutex mutex_;
  std::string seen_[2];  // guarded by mutex_
  std::thread thread_;
};

}  // namespace mx::test
