#include "tests/fuzz/mxrun_entries.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/rendezvous.h"
#include "comm/rendezvous/lost.h"
#include "comm/shm/bootstrap.h"
#include "engine/base/error.h"
#include "mxrun/channel.h"
#include "mxrun/exit_codes.h"
#include "mxrun/launchers/rendezvous_channel.h"
#include "mxrun/messages.h"
#include "mxrun/options.h"
#include "mxrun/plan.h"

namespace mx::fuzz {
namespace {

void mxrun_require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

std::string text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_printable_line(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

/// Returns whether read(text) returns. Otherwise it must throw an `Expected` with a short printable line.
template <class Expected, class F>
bool accepted_message(std::span<const std::byte> bytes, F&& read) {
  try {
    read(text_of_bytes(bytes));
    return true;
  } catch (const Expected& error) {
    const std::string_view message = error.what();
    mxrun_require(message.starts_with("["), "a message begins with its reader");
    mxrun_require(is_printable_line(message) && message.size() < 2000,
                  "a message is one short printable line");
    return false;
  }
}

void require_good_plan(const launch::NodePlan& plan) {
  mxrun_require(!plan.argv.empty(), "a plan has a program");
  mxrun_require(plan.node >= 0 && plan.node < plan.nodes, "a node is one of all");
  for (const launch::RankPlan& rank : plan.ranks) {
    const bool server = rank.role == launch::Role::server;
    mxrun_require(server || rank.role == launch::Role::worker, "a role is known");
    mxrun_require(rank.rank >= 0 && rank.rank < (server ? plan.servers : plan.workers),
                  "a rank is one of all");
    mxrun_require(
        rank.local_rank >= 0 && rank.local_rank < (server ? plan.local_servers : plan.local_workers),
        "a local rank is one of the node");
  }
  mxrun_require(plan.timeout_ms > 0 && plan.heartbeat_ms > 0, "time limits are positive");
  const std::string again = launch::to_json(plan);
  mxrun_require(launch::to_json(launch::plan_from_json(again)) == again, "a plan is read as it was written");
}

/// A table whose only reader is one watch, which is called at once.
class OneWatch final : public comm::Rendezvous {
 public:
  void put(const std::string& key, const std::string& value) override { changed_(key, value); }
  void tell(const std::string& key, const std::string& value) override { changed_(key, value); }
  std::string get(const std::string&, comm::Deadline) override { return ""; }
  uint64_t watch(const std::string&, Changed changed) override {
    changed_ = std::move(changed);
    return 1;
  }
  void unwatch(uint64_t) override {}

 private:
  Changed changed_;
};

}  // namespace

bool plan(std::span<const std::byte> text) {
  return accepted_message<ProtocolError>(
      text, [](const std::string& json) { require_good_plan(launch::plan_from_json(json)); });
}

bool message_to_agent(std::span<const std::byte> text) {
  return accepted_message<ProtocolError>(text, [](const std::string& json) {
    using Op = launch::ToAgent::Op;
    const launch::ToAgent message = launch::message_to_agent(json);
    if (message.op == Op::run) require_good_plan(message.plan);
    mxrun_require(message.signal >= (message.op == Op::signal || message.op == Op::stop ? 1 : 0) &&
                      message.signal <= 64,
                  "a signal has a number");
    mxrun_require(message.grace_ms >= 0 && message.rank >= -1, "numbers are in their ranges");
  });
}

bool message_from_agent(std::span<const std::byte> text) {
  return accepted_message<ProtocolError>(text, [](const std::string& json) {
    const launch::FromAgent message = launch::message_from_agent(json);
    mxrun_require(message.code >= 0 && message.code <= 255, "an exit code is a byte");
    mxrun_require(message.signal >= 0 && message.signal <= 64, "a signal has a number");
    mxrun_require(message.pid == -1 || message.pid > 0, "a process has a number");
    mxrun_require(message.op != launch::FromAgent::Op::failed || message.code > 0, "a failure has a code");
    mxrun_require(message.host.size() <= 255, "a host has a name");
  });
}

bool job_status(std::span<const std::byte> text) {
  return accepted_message<ProtocolError>(text, [](const std::string& json) {
    const launch::JobStatus status = launch::job_status(json);
    mxrun_require(status.elapsed_s >= 0 && status.restarts >= 0, "numbers are in their ranges");
    for (const launch::JobStatus::Process& process : status.processes)
      for (const std::string* shown : {&process.host, &process.state})
        for (const char c : *shown)
          mxrun_require((c & 0xe0) != 0 && c != 0x7f, "a table has no control characters");
  });
}

bool config_file(std::span<const std::byte> text) {
  const int file = memfd_create("config", MFD_CLOEXEC);
  mxrun_require(file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
                "a file can be made");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const char* const words[] = {"mxrun", "--config", path.c_str(), "program"};
  const launch::Parsed parsed = launch::parse_options(4, words);
  close(file);
  if (parsed.exit_code < 0) {
    mxrun_require(parsed.options.program == std::vector<std::string>{"program"}, "the program stays");
    mxrun_require(parsed.options.timeout_ms > 0 && parsed.options.heartbeat_ms > 0,
                  "time limits are positive");
    mxrun_require(parsed.options.workers >= 0 && parsed.options.servers >= 0, "numbers are not negative");
    return true;
  }
  const std::string_view message = parsed.text;
  mxrun_require(parsed.exit_code == launch::kExitUsage || parsed.exit_code == launch::kExitConfiguration,
                "a wrong file has an exit code of its own");
  mxrun_require(message.starts_with("mxrun: ") && message.ends_with("\n"), "a message is a line of mxrun");
  for (const char c : message.substr(0, message.size() - 1)) {
    const auto byte = static_cast<unsigned char>(c);
    mxrun_require(byte >= 0x20 && byte != 0x7f, "a message is one line");
  }
  mxrun_require(message.size() < 9000, "a message is short");
  return false;
}

bool agent_frames(std::span<const std::byte> bytes) {
  constexpr size_t kMostBytes = 60000;  // which the socket holds, so that one thread can do both
  if (bytes.size() > kMostBytes) return false;
  int ends[2];
  mxrun_require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a socket can be made");
  const std::unique_ptr<launch::Channel> channel = launch::socket_channel(ends[1]);
  mxrun_require(
      bytes.empty() || write(ends[0], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
      "a socket takes the bytes");
  close(ends[0]);
  std::string again;
  for (std::string message; channel->receive(&message);) {
    const auto size = static_cast<uint32_t>(message.size());
    again.append(reinterpret_cast<const char*>(&size), sizeof size).append(message);
  }
  mxrun_require(channel->closed(), "a channel ends with its socket");
  mxrun_require(text_of_bytes(bytes).starts_with(again), "messages arrive as they were sent");
  return !again.empty() && again.size() == bytes.size();
}

bool agent_pieces(std::span<const std::byte> bytes) {
  const auto table = std::make_shared<OneWatch>();
  launch::RendezvousChannel channel(table, "to/", "from/");
  size_t messages = 0, received = 0, sent = 0;
  bool whole = true, last = true;
  while (bytes.size() >= 2 && whole) {
    const auto number = std::to_integer<size_t>(bytes[0]), size = std::to_integer<size_t>(bytes[1]);
    bytes = bytes.subspan(2);
    whole = size <= bytes.size() && size > 0;
    if (!whole) break;
    const std::string piece = text_of_bytes(bytes.first(size));
    bytes = bytes.subspan(size);
    last = piece[0] != '+';
    sent += size;
    // A number beyond those of the format stands for a key that is no number.
    table->put("from/" + (number < 250 ? std::to_string(number) : "x" + std::to_string(number)), piece);
    for (std::string message; channel.receive(&message);) {
      ++messages;
      received += message.size();
    }
  }
  mxrun_require(received <= sent, "messages have no more bytes than their pieces");
  channel.closer()();
  std::string message;
  mxrun_require(!channel.receive(&message) && channel.closed(), "a channel ends when the other side is gone");
  return whole && bytes.empty() && messages > 0 && last;
}

bool lost_process(std::span<const std::byte> text) {
  const std::string entry = text_of_bytes(text);
  const size_t cut = std::min(entry.find('\n'), entry.size());
  const std::string key = entry.substr(0, cut), value = entry.substr(std::min(cut + 1, entry.size()));
  bool lost = false, because = false;
  try {
    const comm::LostProcess read = comm::parse_lost(key, value);
    mxrun_require(comm::lost_value(read) == value || value.find("\n-0") != std::string::npos ||
                      value.find("\n0") != std::string::npos,
                  "an entry is read as it was written");
    const comm::LostProcess again = comm::parse_lost(comm::lost_key(read), comm::lost_value(read));
    mxrun_require(comm::to_string(again) == comm::to_string(read), "an entry has one meaning");
    lost = true;
  } catch (const ProtocolError&) {
  }
  try {
    const comm::Consequence read = comm::parse_consequence(key, value);
    mxrun_require(!read.process.role.empty() && !read.cause.role.empty(), "processes have a role");
    because = true;
  } catch (const ProtocolError&) {
  }
  return lost || because;
}

bool shm_offer(std::span<const std::byte> text) {
  const std::string entry = text_of_bytes(text);
  try {
    const comm::shm::Offer offer = comm::shm::parse_offer(entry, "rank 0");
    mxrun_require(!offer.address.empty() && offer.address.size() <= 108, "an address fits its structure");
    mxrun_require(comm::shm::to_text(offer) == entry, "an offer is read as it was written");
    return true;
  } catch (const CommunicationError& error) {
    mxrun_require(std::string_view(error.what()).starts_with("[shm] "), "a message begins with its reader");
    return false;
  }
}

}  // namespace mx::fuzz
