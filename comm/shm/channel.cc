// Messages between two ranks.
#include <algorithm>
#include <cstring>

#include "comm/shm/group.h"
#include "engine/base/check.h"

namespace mx::comm::shm {

void Group::compare_ends(const Channel& channel, int receiver, int sender, const char* op) const {
  const Entry& from = channel.sending;
  const Entry& to = channel.receiving;
  const bool same = from.type == to.type && from.count == to.count && from.what_hash == to.what_hash &&
                    from.what_bytes == to.what_bytes;
  if (!same) disagree(from, sender, to, receiver, op);
}

bool Group::direct_message(const Channel& channel, size_t bytes) const {
  return arena_ != nullptr && channel.receiving.arena != 0 &&
         arena_->contains(channel.sending.in_offset, bytes);
}

// The two ranks compare their announcements, then the sender fills its two buffers in turn. If its data lies
// in the arena, the receiver copies it from there, as one part. The sender waits until all is taken, because
// the next message, perhaps to another rank, uses the same buffers.
void Group::send(const Call& call) {
  const Request& q = call.request;
  const auto peer = static_cast<size_t>(q.peer);
  const size_t bytes = q.count * call.element;
  Channel& channel = region_.channel(rank_, q.peer);
  const uint64_t number = ++sent_[peer];
  announce(channel.sending, q, number);
  peers_.wait(q.peer, Counter::receiving, number, call.context);
  compare_ends(channel, q.peer, rank_, call.context.op);
  uint64_t& parts = parts_sent_[peer];
  if (direct_message(channel, bytes)) {
    peers_.publish(channel.sent, ++parts);
  } else {
    const char* const from = static_cast<const char*>(q.in);
    const uint64_t before = parts;
    for (size_t done = 0; done < bytes || done == 0; done += kChannelBytes) {
      if (parts >= before + 2) peers_.wait(q.peer, Counter::taken, parts - 1, call.context);
      if (bytes > 0)
        std::memcpy(region_.channel_buffer(rank_, parts), from + done, std::min(kChannelBytes, bytes - done));
      peers_.publish(channel.sent, ++parts);
    }
  }
  peers_.wait(q.peer, Counter::taken, parts, call.context);
}

void Group::receive(const Call& call) {
  const Request& q = call.request;
  const auto peer = static_cast<size_t>(q.peer);
  const size_t bytes = q.count * call.element;
  Channel& channel = region_.channel(q.peer, rank_);
  const uint64_t number = ++received_[peer];
  announce(channel.receiving, q, number);
  peers_.wait(q.peer, Counter::sending, number, call.context);
  compare_ends(channel, rank_, q.peer, call.context.op);
  uint64_t& parts = parts_received_[peer];
  char* const out = static_cast<char*>(q.out);
  if (direct_message(channel, bytes)) {
    peers_.wait(q.peer, Counter::sent, parts + 1, call.context);
    if (bytes > 0) std::memcpy(out, arena_->at(channel.sending.in_offset), bytes);
    peers_.publish(channel.taken, ++parts);
    return;
  }
  for (size_t done = 0; done < bytes || done == 0; done += kChannelBytes) {
    peers_.wait(q.peer, Counter::sent, parts + 1, call.context);
    if (bytes > 0)
      std::memcpy(out + done, region_.channel_buffer(q.peer, parts), std::min(kChannelBytes, bytes - done));
    peers_.publish(channel.taken, ++parts);
  }
}

}  // namespace mx::comm::shm
