#include "comm/shm/rings.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "comm/shm/region.h"
#include "engine/base/check.h"

namespace mx::comm::shm {

namespace {

constexpr uint64_t kRingsMagic = 0x6d78'5249'4e47'3031;  // "mxRING01"; changes with the layout
// All rings of a host together should not use more than this; a ring has at least the first size.
constexpr size_t kAllRingsBytes = size_t{64} << 20;
constexpr size_t kLeastRingBytes = 4096, kMostRingBytes = 256 * 1024;
// A reader that is awake sees the bytes of a long message in steps of this size, so that both ranks copy at
// the same time.
constexpr size_t kStepBytes = 32 * 1024;

}  // namespace

struct Rings::Header {
  std::atomic<uint64_t> magic{0};
  uint64_t size = 0, ring_bytes = 0;
};

struct alignas(kLine) Rings::Member {
  cpu_set_t cpus = {};
};

// The first part is written by the writer of the ring, the second by its reader; each clears the other's flag
// when it rings.
struct alignas(2 * kLine) Rings::Ring {
  std::atomic<uint64_t> written{0};
  std::atomic<uint32_t> writer_sleeps{0};
  alignas(2 * kLine) std::atomic<uint64_t> taken{0};
  std::atomic<uint32_t> reader_sleeps{0};
};

struct Rings::Layout {
  size_t members, rings, ring_bytes, data, bytes;
};

Rings::Layout Rings::layout_of(int size) {
  const auto ranks = static_cast<size_t>(size);
  Layout layout{};
  layout.ring_bytes = kMostRingBytes;
  while (layout.ring_bytes > kLeastRingBytes && ranks * ranks * layout.ring_bytes > kAllRingsBytes)
    layout.ring_bytes /= 2;
  layout.members = whole_pages(sizeof(Header));
  layout.rings = layout.members + whole_pages(ranks * sizeof(Member));
  layout.data = layout.rings + whole_pages(ranks * ranks * sizeof(Ring));
  layout.bytes = layout.data + ranks * (ranks - 1) * layout.ring_bytes;
  return layout;
}

SharedFiles Rings::create(int size) {
  MX_CHECK(size >= 2 && size <= kMostRanks, CommunicationError, "[shm] expected 2 to ", kMostRanks,
           " ranks on a host that share memory, got ", size);
  const Layout layout = layout_of(size);
  MX_CHECK(within_file_limit(layout.bytes), CommunicationError, "[shm] expected to use ", layout.bytes,
           " bytes of shared memory for ", size,
           " ranks, got a lower limit of the size of files (ulimit -f)");
  SharedFiles files;
  files.region = new_shared_memory("mx-shm-rings");
  MX_CHECK(files.region, CommunicationError, "[shm] expected shared memory, got: ", std::strerror(errno));
  const bool reserved = ftruncate(files.region.get(), static_cast<off_t>(layout.bytes)) == 0 &&
                        reserve_pages(files.region.get(), 0, layout.bytes);
  MX_CHECK(reserved, CommunicationError, "[shm] expected ", layout.bytes, " bytes of shared memory for ",
           size, " ranks, got: ", std::strerror(errno));
  void* const base = mmap(nullptr, layout.data, PROT_READ | PROT_WRITE, MAP_SHARED, files.region.get(), 0);
  MX_CHECK(base != MAP_FAILED, CommunicationError, "[shm] expected to map ", layout.data,
           " bytes, got: ", std::strerror(errno));
  char* const bytes = static_cast<char*>(base);
  auto* const header = new (bytes) Header;
  header->size = static_cast<uint64_t>(size);
  header->ring_bytes = layout.ring_bytes;
  for (int i = 0; i < size; ++i)
    new (bytes + layout.members + static_cast<size_t>(i) * sizeof(Member)) Member;
  for (int i = 0; i < size * size; ++i)
    new (bytes + layout.rings + static_cast<size_t>(i) * sizeof(Ring)) Ring;
  header->magic.store(kRingsMagic, std::memory_order_release);
  munmap(base, layout.data);
  for (int i = 0; i < size; ++i) {
    files.bells.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    MX_CHECK(files.bells.back(), CommunicationError,
             "[shm] expected a new eventfd, got: ", std::strerror(errno));
  }
  return files;
}

Rings::Rings(const SharedFiles& files, int rank, int size) : rank_(rank), size_(size) {
  const Layout layout = layout_of(size);
  struct stat status {};
  MX_CHECK(fstat(files.region.get(), &status) == 0 && static_cast<size_t>(status.st_size) == layout.bytes &&
               files.bells.size() == static_cast<size_t>(size),
           ProtocolError, "[shm] expected shared memory of ", layout.bytes, " bytes and ", size,
           " bells, got ", status.st_size, " bytes and ", files.bells.size(), " bells");
  for (const Fd& bell : files.bells) {
    bells_.emplace_back(fcntl(bell.get(), F_DUPFD_CLOEXEC, 0));
    MX_CHECK(bells_.back(), CommunicationError, "[shm] expected a descriptor, got: ", std::strerror(errno));
  }
  void* const base = mmap(nullptr, layout.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, files.region.get(), 0);
  MX_CHECK(base != MAP_FAILED, CommunicationError, "[shm] expected to map ", layout.bytes,
           " bytes, got: ", std::strerror(errno));
  base_ = static_cast<char*>(base);
  const auto* const header = reinterpret_cast<const Header*>(base_);
  if (header->magic.load(std::memory_order_acquire) != kRingsMagic ||
      header->size != static_cast<uint64_t>(size) || header->ring_bytes != layout.ring_bytes) {
    munmap(base_, layout.bytes);
    throw ProtocolError("[shm] expected shared memory of this version and number of ranks, got another");
  }
  bytes_ = layout.bytes;
  ring_bytes_ = layout.ring_bytes;
  members_ = reinterpret_cast<Member*>(base_ + layout.members);
  rings_ = reinterpret_cast<Ring*>(base_ + layout.rings);
  data_ = base_ + layout.data;
  sched_getaffinity(0, sizeof(members_[rank].cpus), &members_[rank].cpus);
}

Rings::~Rings() { munmap(base_, bytes_); }

bool Rings::crowded() const {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int member = 0; member < size_; ++member) CPU_OR(&cpus, &cpus, &members_[member].cpus);
  return size_ > CPU_COUNT(&cpus);
}

Rings::Ring& Rings::ring(int from, int to) const { return rings_[from * size_ + to]; }

// There is no ring from a rank to itself.
char* Rings::data(int from, int to) const {
  const int number = from * (size_ - 1) + (to > from ? to - 1 : to);
  return data_ + static_cast<size_t>(number) * ring_bytes_;
}

void Rings::ring_bell(int rank) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(bells_[static_cast<size_t>(rank)].get(), &one, sizeof one);
}

size_t Rings::write(int peer, const iovec* parts, int count) {
  Ring& to = ring(rank_, peer);
  char* const buffer = data(rank_, peer);
  const uint64_t begin = to.written.load(std::memory_order_relaxed);
  const uint64_t end = to.taken.load(std::memory_order_acquire) + ring_bytes_;
  uint64_t at = begin, published = begin;
  for (int part = 0; part < count && at < end; ++part) {
    const char* from = static_cast<const char*>(parts[part].iov_base);
    for (size_t left = parts[part].iov_len; left > 0 && at < end;) {
      const size_t offset = at % ring_bytes_;
      const size_t bytes = std::min({left, static_cast<size_t>(end - at), ring_bytes_ - offset, kStepBytes});
      std::memcpy(buffer + offset, from, bytes);
      from += bytes;
      left -= bytes;
      at += bytes;
      if (at - published < kStepBytes) continue;
      to.written.store(at, std::memory_order_release);
      published = at;
    }
  }
  if (at == begin) return 0;
  // Sequentially consistent, like the announcement of a sleeper: either this rank sees that the reader
  // sleeps, or the reader sees the bytes. Only now, because a reader that wakes may take the processor from
  // this rank.
  to.written.store(at, std::memory_order_seq_cst);
  if (to.reader_sleeps.load(std::memory_order_seq_cst) != 0 && to.reader_sleeps.exchange(0) != 0)
    ring_bell(peer);
  return at - begin;
}

size_t Rings::read(int peer, const iovec* parts, int count) {
  Ring& from = ring(peer, rank_);
  const char* const buffer = data(peer, rank_);
  const uint64_t begin = from.taken.load(std::memory_order_relaxed);
  const uint64_t end = from.written.load(std::memory_order_acquire);
  MX_CHECK(end - begin <= ring_bytes_, ProtocolError, "[shm] expected at most ", ring_bytes_,
           " bytes in the shared memory between two ranks, got ", end - begin);
  uint64_t at = begin, published = begin;
  for (int part = 0; part < count && at < end; ++part) {
    char* to = static_cast<char*>(parts[part].iov_base);
    for (size_t left = parts[part].iov_len; left > 0 && at < end;) {
      const size_t offset = at % ring_bytes_;
      const size_t bytes = std::min({left, static_cast<size_t>(end - at), ring_bytes_ - offset, kStepBytes});
      std::memcpy(to, buffer + offset, bytes);
      to += bytes;
      left -= bytes;
      at += bytes;
      if (at - published < kStepBytes) continue;
      from.taken.store(at, std::memory_order_release);
      published = at;
    }
  }
  if (at == begin) return 0;
  from.taken.store(at, std::memory_order_seq_cst);
  if (from.writer_sleeps.load(std::memory_order_seq_cst) != 0) {
    const uint64_t filled = from.written.load(std::memory_order_relaxed) - at;
    if (filled <= ring_bytes_ / 2 && from.writer_sleeps.exchange(0) != 0) ring_bell(peer);
  }
  return at - begin;
}

bool Rings::is_readable(int peer) const {
  const Ring& from = ring(peer, rank_);
  return from.written.load(std::memory_order_acquire) != from.taken.load(std::memory_order_relaxed);
}

bool Rings::is_writable(int peer) const {
  const Ring& to = ring(rank_, peer);
  return to.written.load(std::memory_order_relaxed) - to.taken.load(std::memory_order_acquire) < ring_bytes_;
}

bool Rings::sleep_until_readable(int peer) {
  Ring& from = ring(peer, rank_);
  announced_ = true;
  from.reader_sleeps.store(1, std::memory_order_seq_cst);
  return from.written.load(std::memory_order_seq_cst) == from.taken.load(std::memory_order_relaxed);
}

bool Rings::sleep_until_writable(int peer) {
  Ring& to = ring(rank_, peer);
  announced_ = true;
  to.writer_sleeps.store(1, std::memory_order_seq_cst);
  return to.written.load(std::memory_order_relaxed) - to.taken.load(std::memory_order_seq_cst) >= ring_bytes_;
}

void Rings::awake() {
  if (!announced_) return;
  announced_ = false;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    for (std::atomic<uint32_t>* sleeps : {&ring(peer, rank_).reader_sleeps, &ring(rank_, peer).writer_sleeps})
      if (sleeps->load(std::memory_order_relaxed) != 0) sleeps->store(0, std::memory_order_relaxed);
  }
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t got = ::read(bell(), &rung, sizeof rung);
}

}  // namespace mx::comm::shm
