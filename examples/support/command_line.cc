#include "examples/support/command_line.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <sstream>

namespace mx::examples {

CommandLine::CommandLine(const std::string& purpose) : app_(std::make_unique<CLI::App>(purpose)) {
  app_->failure_message([](const CLI::App* app, const CLI::Error& error) {
    const std::string name = app->get_name();  // the path of the program
    return name.substr(name.rfind('/') + 1) + ": " + error.what() + " (--help lists the options)\n";
  });
}
CommandLine::~CommandLine() = default;

CommandLine::Option CommandLine::option(const std::string& name, Target target, const std::string& help) {
  return std::visit(
      [&](auto* value) {
        using T = std::remove_reference_t<decltype(*value)>;
        constexpr bool kText = std::is_same_v<T, std::string>, kList = !kText && requires { value->empty(); };
        CLI::Option* const made = app_->add_option(name, *value, help);
        // Scripts pass their own options first and then the user's, so the last value must count.
        if constexpr (!kList) made->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        if constexpr (kText || kList) {
          if constexpr (kList) made->delimiter(',');
          if (!value->empty()) made->capture_default_str();
        } else {
          made->capture_default_str();
        }
        return Option(made);
      },
      target);
}

CommandLine::Option CommandLine::flag(const std::string& name, bool& target, const std::string& help) {
  return Option(app_->add_flag(name, target, help));
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (app_->exit(error) != 0) return 2;
    return run_program(app_->get_name().c_str(), [] {});
  }
}

int run_program(const char* name, const std::function<void()>& program) {
  try {
    program();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return 0;
  std::fprintf(stderr, "%s: cannot write the standard output%s%s\n", name, errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  return 1;
}

namespace {

// Returns an error message unless the text is a number that `fits`. CLI11's own checks print their limits
// with 300 digits.
template <class Fits>
std::string explain_number(const std::string& text, const std::string& kind, const Fits& fits) {
  double number = 0;
  if (CLI::detail::lexical_cast(text, number) && fits(number)) return {};
  return "expected a number " + kind + ", got " + text;
}

std::string short_text(double number) {
  std::ostringstream out;
  out << number;
  return out.str();
}

}  // namespace

CommandLine::Option& CommandLine::Option::within(double low, double high) {
  const std::string kind = "from " + short_text(low) + " to " + short_text(high);
  return checked(kind, [=](const std::string& text) {
    return explain_number(text, kind, [=](double number) { return number >= low && number <= high; });
  });
}

CommandLine::Option& CommandLine::Option::at_least(double low) {
  const std::string kind = "of at least " + short_text(low);
  return checked(kind, [=](const std::string& text) {
    return explain_number(text, kind, [=](double number) { return number >= low; });
  });
}

CommandLine::Option& CommandLine::Option::positive() {
  return checked("above 0", [](const std::string& text) {
    return explain_number(text, "above 0", [](double number) { return number > 0; });
  });
}

CommandLine::Option& CommandLine::Option::checked(const std::string& kind,
                                                  std::function<std::string(const std::string&)> explain) {
  option_->check(
      CLI::Validator([explain = std::move(explain)](std::string& text) { return explain(text); }, kind));
  return *this;
}

CommandLine::Option& CommandLine::Option::required() {
  option_->required();
  return *this;
}

CommandLine::Option& CommandLine::Option::called(const std::string& kind) {
  option_->type_name(kind);
  return *this;
}

CommandLine::Option& CommandLine::Option::hidden() {
  option_->group("");
  return *this;
}

bool CommandLine::Option::given() const { return !option_->empty(); }

}  // namespace mx::examples
