#include "engine/base/thread_kept.h"

#include <pthread.h>

#include <system_error>

namespace mx::detail {
namespace {

thread_local constinit ThreadKept* first = nullptr;

// If a destructor called here keeps another object, pthread calls this again, a few times at most.
void delete_all(void*) {
  while (first != nullptr) {
    ThreadKept* const kept = first;
    first = kept->next;
    delete kept;
  }
}

pthread_key_t make_key() {
  pthread_key_t key{};
  if (const int error = pthread_key_create(&key, delete_all); error != 0)
    throw std::system_error(error, std::generic_category(), "pthread_key_create");
  return key;
}

}  // namespace

void delete_at_thread_end(ThreadKept* kept) {
  static const pthread_key_t key = make_key();
  if (first == nullptr) {
    if (const int error = pthread_setspecific(key, kept); error != 0)  // any value but null
      throw std::system_error(error, std::generic_category(), "pthread_setspecific");
  }
  kept->next = first;
  first = kept;
}

}  // namespace mx::detail
