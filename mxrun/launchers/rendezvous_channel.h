// A Channel over the rendezvous: how mxrun talks to agents on other machines.
//
// Each side writes numbered entries below a prefix of its own and watches the other's. A message longer than
// an entry may be is cut; the first byte of an entry says whether more follows.
//
// Thread-safety: one thread at a time, as any Channel. The rendezvous' threads call into it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/rendezvous.h"
#include "mxrun/channel.h"

namespace mx::launch {

/// Where the messages between mxrun and the agent of a node are.
struct ChannelPrefixes {
  std::string to_agent, from_agent;
};
ChannelPrefixes channel_prefixes(int node);

/// A channel that has the rendezvous' table and two prefixes.
class RendezvousChannel final : public Channel {
 public:
  /// The table must live as long as the channel, or is shared with it.
  RendezvousChannel(std::shared_ptr<comm::Rendezvous> table, std::string writes, const std::string& reads);
  ~RendezvousChannel() override;

  void send(const std::string& message) override;
  int readable_fd() const override;
  bool receive(std::string* message) override;
  bool closed() const override;

  /// Says that the other side is gone. Any thread may call the function that this returns, also after the end
  /// of the channel.
  std::function<void()> closer() const;

 private:
  struct Inbox;
  std::shared_ptr<comm::Rendezvous> table_;
  std::string writes_;
  uint64_t sent_ = 0;
  std::shared_ptr<Inbox> inbox_;
  uint64_t watch_ = 0;
};

}  // namespace mx::launch
