#include "comm/shm/region.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "engine/base/check.h"

namespace mx::comm::shm {
namespace {

constexpr uint64_t kMagic = 0x6d78'5348'4d30'3032;  // "mxSHM002"; changes with the layout

struct Header {
  std::atomic<uint64_t> magic{0};
  uint64_t size = 0;
  alignas(kLine) std::atomic<uint32_t> sleepers{0};
};

struct Layout {
  size_t controls, channels, data, bytes;
};

Layout layout_of(int size, size_t rank_bytes) {
  const size_t ranks = static_cast<size_t>(size);
  Layout layout{};
  layout.controls = whole_pages(sizeof(Header));
  layout.channels = layout.controls + whole_pages(ranks * sizeof(Control));
  layout.data = layout.channels + whole_pages(ranks * ranks * sizeof(Channel));
  layout.bytes = layout.data + ranks * rank_bytes;
  return layout;
}

}  // namespace

bool within_file_limit(uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

// Older kernels give up, and free what they have reserved, when a signal arrives. With the timer of a
// profiler, large reservations would never succeed, so the thread takes signals afterwards.
bool reserve_pages(int fd, uint64_t offset, uint64_t bytes) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool reserved = fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return reserved;
}

Fd new_shared_memory(const char* label) {
  Fd memory(memfd_create(label, MFD_CLOEXEC));
  if (memory && fchmod(memory.get(), S_IRUSR | S_IWUSR) != 0) return {};
  return memory;
}

Fd Region::create(int size) {
  const Layout layout = layout_of(size, kRankBytes);
  MX_CHECK(within_file_limit(layout.bytes), CommunicationError, "[shm] expected to use ", layout.bytes,
           " bytes of shared memory for ", size,
           " ranks, got a lower limit of the size of files (ulimit -f)");
  Fd memory = new_shared_memory("mx-shm");
  MX_CHECK(memory, CommunicationError, "[shm] expected shared memory, got: ", std::strerror(errno));
  // Reserved now: otherwise a rank that touches a page when memory is full would be killed by SIGBUS.
  const bool reserved = ftruncate(memory.get(), static_cast<off_t>(layout.bytes)) == 0 &&
                        reserve_pages(memory.get(), 0, layout.bytes);
  MX_CHECK(reserved, CommunicationError, "[shm] expected ", layout.bytes, " bytes of shared memory for ",
           size, " ranks, got: ", std::strerror(errno));
  void* const base = mmap(nullptr, layout.data, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  MX_CHECK(base != MAP_FAILED, CommunicationError, "[shm] expected to map ", layout.data,
           " bytes, got: ", std::strerror(errno));
  char* const bytes = static_cast<char*>(base);
  auto* const header = new (bytes) Header;
  header->size = static_cast<uint64_t>(size);
  for (int i = 0; i < size; ++i)
    new (bytes + layout.controls + static_cast<size_t>(i) * sizeof(Control)) Control;
  for (int i = 0; i < size * size; ++i)
    new (bytes + layout.channels + static_cast<size_t>(i) * sizeof(Channel)) Channel;
  header->magic.store(kMagic, std::memory_order_release);
  munmap(base, layout.data);
  return memory;
}

Region::Region(int fd, int size) : size_(size) {
  const Layout layout = layout_of(size, kRankBytes);
  bytes_ = layout.bytes;
  struct stat status {};
  MX_CHECK(fstat(fd, &status) == 0 && static_cast<size_t>(status.st_size) == bytes_, ProtocolError,
           "[shm] expected shared memory of ", bytes_, " bytes for ", size, " ranks, got ", status.st_size);
  void* const base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  MX_CHECK(base != MAP_FAILED, CommunicationError, "[shm] expected to map ", bytes_,
           " bytes, got: ", std::strerror(errno));
  base_ = static_cast<char*>(base);
  const auto* const header = reinterpret_cast<const Header*>(base_);
  if (header->magic.load(std::memory_order_acquire) != kMagic ||
      header->size != static_cast<uint64_t>(size)) {
    munmap(base_, bytes_);
    throw ProtocolError("[shm] expected shared memory of this version and group size, got another");
  }
  controls_ = reinterpret_cast<Control*>(base_ + layout.controls);
  channels_ = reinterpret_cast<Channel*>(base_ + layout.channels);
  data_ = base_ + layout.data;
}

Region::~Region() { munmap(base_, bytes_); }

std::atomic<uint32_t>& Region::sleepers() const { return reinterpret_cast<Header*>(base_)->sleepers; }

}  // namespace mx::comm::shm
