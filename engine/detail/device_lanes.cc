#include "engine/detail/device_lanes.h"

#include "engine/base/check.h"

namespace mx::detail {

DeviceLanes::DeviceLanes() {
  lanes_.reserve(kInternalLane + 1);
  lanes_.push_back(std::make_unique<Lane>());
}

uint8_t DeviceLanes::find(Context context, StreamKind kind) const {
  const size_t known = count_.load(std::memory_order_acquire);
  for (size_t i = 1; i < known; ++i) {
    if (lanes_[i]->context == context && lanes_[i]->kind == kind) return static_cast<uint8_t>(i);
  }
  return 0;
}

uint8_t DeviceLanes::find_or_add(Context context, StreamKind kind, EngineLock& engine_lock) {
  const std::lock_guard guard(mutex_);
  if (const uint8_t known = find(context, kind)) return known;
  const size_t index = lanes_.size();
  MX_CHECK(index < kInternalLane, InvalidArgument, "[push] expected at most ", kInternalLane - 1,
           " different combinations of device and lane in one engine, got one more");
  auto lane = std::make_unique<Lane>();  // allocated before the engine's lock is taken
  lane->context = context;
  lane->kind = kind;
  lane->accelerator = !context.is_cpu();
  if (lane->accelerator) {
    for (const auto& other : lanes_) {
      if (other->accelerator && other->context == context) lane->issuer = other->issuer;
    }
  }
  engine_lock.lock();
  if (lane->accelerator && lane->issuer < 0) {
    lane->issuer = issuers_++;
  }
  lanes_.push_back(std::move(lane));
  count_.store(lanes_.size(), std::memory_order_release);
  engine_lock.unlock();
  return static_cast<uint8_t>(index);
}

// Lanes take turns. A lane with an urgent operation comes first, then a communication lane.
Lane* DeviceLanes::begin_issue() {
  if (ready_ == 0) return nullptr;
  const size_t lanes = lanes_.size();
  Lane* best = nullptr;
  for (size_t i = 0; i < lanes; ++i) {
    Lane& lane = *lanes_[(turn_ + i) % lanes];
    if (!lane.accelerator || lane.ready.empty() || is_attended(lane)) continue;
    if (best == nullptr || (lane.ready.urgent() && !best->ready.urgent()) ||
        (lane.kind == StreamKind::comm && best->kind != StreamKind::comm && !best->ready.urgent())) {
      best = &lane;
    }
  }
  if (best == nullptr) return nullptr;
  ++turn_;
  --ready_;
  issuing_[issuer_of(*best)].store(true, std::memory_order_seq_cst);
  return best;
}

}  // namespace mx::detail
