// CommandLine: the options of a program, read with CLI11; and run_program(), which ends a program with the
// right status. CLI11 is compiled once for all programs, because it takes ten times as long as most of them.
//
//   CommandLine line("Softmax regression on handwritten digits");
//   line.option("--epochs", &epochs, "passes over the training images").within(1, 10000);
//   if (auto status = line.parse(argc, argv)) return *status;
//   return run_program("softmax_regression", [&] { train(epochs); });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mx::examples {

class CommandLine {
 public:
  /// The variable that receives a value. The entries of a list are separated by commas.
  using Target = std::variant<int*, uint32_t*, int64_t*, uint64_t*, double*, std::string*, std::vector<int>*,
                              std::vector<int64_t>*, std::vector<std::string>*>;

  /// One option, for further settings.
  class Option {
   public:
    explicit Option(CLI::Option* option) : option_(option) {}
    /// Accepts values from `low` to `high`, both included.
    Option& within(double low, double high);
    Option& at_least(double low);
    Option& positive();
    /// `explain` returns an error message for a text, or an empty string if the text is valid.
    Option& checked(const std::string& kind, std::function<std::string(const std::string&)> explain);
    /// The command line must have it.
    Option& required();
    /// The name of the value in the help text.
    Option& called(const std::string& kind);
    /// Omits the option from the help text.
    Option& hidden();
    /// Returns true if the option was on the command line. Call after parse().
    bool given() const;

   private:
    CLI::Option* option_;
  };

  explicit CommandLine(const std::string& purpose);
  ~CommandLine();

  /// The present value of `target` is the default, which the help shows unless it is empty. `target` must
  /// live until parse() has returned. If the option is given several times, the last value counts; for a
  /// list, all values are joined. A name without "--" is an argument, which is known by its place.
  Option option(const std::string& name, Target target, const std::string& help);
  /// Sets `target` to true; a name that begins with "!" sets it to false.
  Option flag(const std::string& name, bool& target, const std::string& help);

  /// Sets the targets. With --help it prints the help, and for a command line that it cannot read one line on
  /// the standard error, which begins with the name of the program. Then it returns the status to end the
  /// program with: 0, or 2; 1 if the help could not be written.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

/// Calls `program`, and returns the status to end the process with: 0; or 1, with a line on the standard
/// error that begins with `name`, if the program throws or if not everything that it printed could be written
/// ("train_mnist > /dev/full").
int run_program(const char* name, const std::function<void()>& program);

}  // namespace mx::examples
