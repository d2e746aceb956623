#include "ndarray/detail/push_on.h"

#include "engine/detail/at_replay.h"

namespace mx::detail {

UseLists::UseLists(Engine& engine, std::span<const ArrayUse> uses) {
  const bool large = uses.size() > kInline;
  for (const ArrayUse& use : uses) {
    const auto list = static_cast<size_t>(use.touch);
    const Var var = use.array->storage->var(engine);
    if (large) {
      more_[list].push_back(var);
    } else {
      inline_[list][count_[list]++] = var;
    }
  }
}

void UseLists::set(PushOptions& options) const {
  const auto list = [&](Touch touch) {
    const auto i = static_cast<size_t>(touch);
    return more_[i].empty() ? VarList(std::span<const Var>(inline_[i], count_[i])) : VarList(more_[i]);
  };
  options.reads = list(Touch::read);
  options.writes = list(Touch::write);
  options.updates = list(Touch::update);
}

PushedArrays::PushedArrays(std::span<const ArrayUse> uses, const Engine& engine, bool on_device)
    : size_(static_cast<uint32_t>(uses.size())), recorded_(engine.recording()), on_device_(on_device) {
  if (recorded_) [[unlikely]] {
    // A replay changes the arrays again that this call writes. Bumping the version then makes a backward pass
    // find that a saved value has changed.
    Ref<ReplayCount> const segment(replays_of_recording());
    for (const ArrayUse& use : uses) {
      if (use.touch == Touch::read) continue;
      Storage& storage = *use.array->storage;
      // If no other call has changed the storage, the segment makes its content.
      if (storage.version() <= 1 && !storage.has_unseen_writers()) storage.set_maker(segment);
      if (storage.maker() != segment.get())
        at_replay(&storage, [kept = use.array->storage] { kept->bump_version(); });
    }
  }
  uintptr_t* words = inline_;
  if (size_ > kInline) {
    more_ = std::make_unique<uintptr_t[]>(size_);
    words = more_.get();
  }
  for (size_t i = 0; i < size_; ++i) {
    ArrayImpl* const array = Ref<ArrayImpl>(uses[i].array).leave();
    words[i] = reinterpret_cast<uintptr_t>(array) | static_cast<uintptr_t>(uses[i].touch);
    Storage& storage = *array->storage;
    // A recorded operation counts as pending as long as its segment exists, because a replay does not count
    // its operations again.
    if (recorded_ && uses[i].touch != Touch::read) storage.expect_unseen_writers();
    if (storage.on_cpu()) storage.begin_pending();
  }
}

PushedArrays::~PushedArrays() {
  for (size_t i = 0; i < size_; ++i) {
    const Ref<ArrayImpl> array = Ref<ArrayImpl>::adopt(&(*this)[i]);
    Storage& storage = *array->storage;
    if (!storage.on_cpu()) continue;
    if (on_device_) {
      storage.taint();
    } else if (touch(i) != Touch::read) {
      // In a segment, ran_well_ is false: another operation may have made the last replay fail.
      ran_well_ ? storage.cleanse() : storage.taint();
    }
    storage.end_pending();
  }
}

void PushedArrays::declare(const RunContext& context) const {
  for (size_t i = 0; i < size_; ++i) {
    const Var var = (*this)[i].storage->known_var();
    touch(i) == Touch::read ? context.read(var) : context.write(var);
  }
}

void wait_for_readers(ArrayImpl& array, const char* name) {
  // An empty update is ordered after all earlier operations on the memory, including those that only read.
  const ArrayUse use{&array, Touch::update};
  push_on(
      current_engine(), {&use, 1}, [](const RunContext&, PushedArrays& arrays) { arrays.ran_well(); },
      {.context = array.context(), .name = name}, std::source_location::current());
  array.storage->wait();
}

}  // namespace mx::detail
