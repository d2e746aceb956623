#include "comm/parts.h"

namespace mx::comm {

std::vector<Part> parts_of_slices(const Request& request, int rank, int size, const void* in,
                                  void* received) {
  const size_t width = size_of(request.type);
  const size_t mine = slice_of(request.count, size, rank).count * width;
  std::vector<Part> parts;
  for (int r = 0; r < size; ++r) {
    const Slice theirs = slice_of(request.count, size, r);
    parts.push_back({offset_by(in, theirs.begin * width), offset_by(received, static_cast<size_t>(r) * mine),
                     theirs.count * width, mine, r});
  }
  return parts;
}

std::vector<Part> parts_of_gather(const Request& request, int rank, int size, const void* in, void* out) {
  const size_t width = size_of(request.type);
  const size_t mine = slice_of(request.count, size, rank).count * width;
  std::vector<Part> parts;
  for (int r = 0; r < size; ++r) {
    const Slice theirs = slice_of(request.count, size, r);
    parts.push_back({in, offset_by(out, theirs.begin * width), mine, theirs.count * width, r});
  }
  return parts;
}

std::vector<Part> parts_of_all_to_all(const Request& request, int size, const void* in, void* out) {
  const size_t bytes = request.count * size_of(request.type);
  std::vector<Part> parts;
  for (int r = 0; r < size; ++r) {
    const size_t begin = static_cast<size_t>(r) * bytes;
    parts.push_back({offset_by(in, begin), offset_by(out, begin), bytes, bytes, r});
  }
  return parts;
}

}  // namespace mx::comm
