// Checkpoint: everything that a training run needs to continue, in one file.
//
//   training::Checkpoint checkpoint;
//   checkpoint.add("model", net).add("optimizer", opt).add("schedule", schedule);
//   checkpoint.add("loader", loader).add_random().add("epoch", epoch);
//   checkpoint.set("options", "lr=0.1 batch=64");    // must be equal when the run is resumed
//
//   if (checkpoint.load_if_exists("run.safetensors")) std::cout << "resumed in epoch " << epoch << '\n';
//   while (epoch < 10) {
//     for (auto& [images, labels] : loader) ...
//     ++epoch;                               // before save(): the number of the next epoch
//     checkpoint.save("run.safetensors");
//   }
//
// A resumed run has the bits of one that never stopped, if all that it depends on was added: parameters and
// buffers, the optimiser (or trainer), schedules, loss scales, averages, metrics of early stopping, the place
// in the data, and random generators. An object that is added must outlive the checkpoint.
//
// The file is replaced as a whole: a process that is killed while it saves leaves the old file or the new
// one, and perhaps a part of the new one as ".NAME.PID-N.tmp" in the same folder, which may be deleted. With
// several processes, process 0 saves; parts whose state_dict() is a call of all processes (a trainer with a
// sharded optimiser) need state() in all, and save(path, state) in process 0. Thread-safety: one thread at a
// time.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "nn/data/loader.h"

namespace mx::training {

class Checkpoint {
 public:
  /// Adds an object with state_dict() and load_state_dict(): a module, an optimiser, a trainer, a schedule, a
  /// LossScale, Averages, EarlyStopping. All add() throw InvalidArgument for a name that is empty, taken or
  /// contains '/'.
  template <class T>
  requires requires(T& object, const NamedArrays& state) {
    { object.state_dict() } -> std::convertible_to<NamedArrays>;
    object.load_state_dict(state);
  }
  Checkpoint& add(const std::string& name, T& object) {
    return add_part(
        name, [&object] { return NamedArrays(object.state_dict()); },
        [&object](const NamedArrays& state) { object.load_state_dict(state); });
  }
  /// Adds the place in the data: loading makes the next loop continue there.
  Checkpoint& add(const std::string& name, data::Loader& loader);
  Checkpoint& add(const std::string& name, int64_t& number);
  Checkpoint& add(const std::string& name, double& number);
  /// Adds a list that grows, such as the losses of all epochs.
  Checkpoint& add(const std::string& name, std::vector<double>& numbers);
  /// Adds an array, whose shape and type must not change.
  Checkpoint& add(const std::string& name, const NDArray& array);
  /// Adds the state of the default random generator of a device, under the name "random <device>".
  Checkpoint& add_random(Context context = cpu());
  /// Adds a text that load() compares: options that must be equal.
  Checkpoint& set(const std::string& name, const std::string& text);

  /// Returns the state of all parts: the arrays "<part>/<array>".
  NamedArrays state() const;
  /// Writes the file. Waits for the arrays. Throws the error of a poisoned array before anything is written,
  /// and FileError.
  void save(const std::string& path) const { save(path, state()); }
  /// The same for a state that state() has returned. `ops`: the calls to the operating system, for tests.
  void save(const std::string& path, const NamedArrays& state, io::FileOps& ops = io::FileOps::posix()) const;
  /// Loads all parts. Throws InvalidArgument for a file that lacks a part or has others, or other texts,
  /// before anything is changed. A part whose arrays do not fit throws its own error, with the name of the
  /// part and the file; parts that were added before it have been loaded then. Throws FileError and
  /// FormatError as load_safetensors().
  void load(const std::string& path, std::source_location where = std::source_location::current());
  /// Returns false if there is no such file. Throws FileError if that cannot be found out.
  bool load_if_exists(const std::string& path, std::source_location where = std::source_location::current());

 private:
  struct Part {
    std::string name;
    std::function<NamedArrays()> state;
    std::function<void(const NamedArrays&)> load;
  };
  Checkpoint& add_part(const std::string& name, std::function<NamedArrays()> state,
                       std::function<void(const NamedArrays&)> load);
  void check_name(const std::string& name) const;

  std::vector<Part> parts_;
  FileMetadata texts_;
};

}  // namespace mx::training
