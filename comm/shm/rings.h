// Rings: streams of bytes between the ranks of one host, through memory that all of them map. Internal.
//
// From each rank to each other one there is a ring buffer. It carries bytes like a socket: write() and read()
// copy what fits or what is there, and never wait. Ranks are numbered 0, 1, ... within the host here.
//
// A rank that has nothing to do sleeps in poll(), because it may wait for sockets as well. Therefore each
// rank has a bell, an eventfd that all ranks of the host hold:
//
//   if (!rings.sleep_until_readable(peer)) ...   // bytes are there: do not sleep
//   poll(... rings.bell() ...);
//   rings.awake();
//
// A rank that writes rings the bell only if the reader sleeps. A rank that reads rings it only if the writer
// sleeps and half of the ring is free, so that a writer that is faster does not wake up for every few bytes.
// If the reader waits for bytes that the writer has not yet written, it has read all others, so it has rung.
//
// The memory is an anonymous file (comm/shm/region.h), and all of it is reserved when it is made, so that a
// host without free memory shows as an error then and not as SIGBUS later. Each counter of a ring is written
// by one rank only and never falls. A child that a rank forks may only destroy its copy, which leaves the
// memory as it is.
//
// Thread-safety: one thread at a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/net/fd.h"
#include "comm/shm/bootstrap.h"

namespace mx::comm::shm {

class Rings {
 public:
  /// More bells than these do not fit into one message between processes.
  static constexpr int kMostRanks = 240;

  /// Makes the memory and the bells. Throws CommunicationError if there are too many ranks or the kernel
  /// refuses.
  static SharedFiles create(int size);
  /// Maps what create() has made and announces the processors that this rank may use. Keeps copies of the
  /// descriptors. Throws ProtocolError if it was made for another group, CommunicationError if the kernel
  /// refuses.
  Rings(const SharedFiles& files, int rank, int size);
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  size_t ring_bytes() const { return ring_bytes_; }
  /// Returns whether the ranks outnumber the processors that they may use together. Valid when all have been
  /// made.
  bool crowded() const;

  /// Copies from the parts what fits into the ring to `peer`, and returns its bytes.
  size_t write(int peer, const iovec* parts, int count);
  /// Fills the parts with what the ring from `peer` has, and returns its bytes. Throws ProtocolError if the
  /// counters of the ring are impossible.
  size_t read(int peer, const iovec* parts, int count);
  bool is_readable(int peer) const;
  bool is_writable(int peer) const;

  /// Announces that this rank is about to sleep until the ring from `peer` has bytes. Returns false if it has
  /// some.
  bool sleep_until_readable(int peer);
  /// The same until the ring to `peer` has room.
  bool sleep_until_writable(int peer);
  /// Readable when another rank has rung.
  int bell() const { return bells_[static_cast<size_t>(rank_)].get(); }
  /// Ends the sleep. Call it after every sleep_until_...(), whatever it returned.
  void awake();

 private:
  struct Header;
  struct Member;
  struct Ring;
  struct Layout;
  static Layout layout_of(int size);
  Ring& ring(int from, int to) const;
  char* data(int from, int to) const;
  void ring_bell(int rank);

  const int rank_, size_;
  size_t ring_bytes_ = 0, bytes_ = 0;
  char* base_ = nullptr;
  Member* members_ = nullptr;
  Ring* rings_ = nullptr;
  char* data_ = nullptr;
  std::vector<Fd> bells_;
  bool announced_ = false;  ///< a sleep has been announced
};

}  // namespace mx::comm::shm
